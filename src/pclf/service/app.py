"""The app: routes of the API and the page. What they do is in `desk`; who may come in is in `gate`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

from pclf.errors import DataError, PclfError, StoreError, UnknownNameError, visible
from pclf.service import answers
from pclf.service.answers import LONGEST, check_text
from pclf.service.desk import Desk
from pclf.service.gate import Gate
from pclf.service.logs import Log, as_json
from pclf.service.settings import Settings
from pclf.service.words import in_words

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("page", "ask", "lists", "taste", "others", "operator", "charts")
FILES = {"style.css": "text/css", "icon.svg": "image/svg+xml", **{f"{name}.js": "text/javascript" for name in SCRIPTS}}
RETRY = "2"                # seconds after which a database may be back

Id = Annotated[str, InPath(min_length=1, max_length=LONGEST, description="an id; slashes and spaces as %2F and %20")]
DomainName = Annotated[str, Query(min_length=1, max_length=LONGEST, description="a catalogue, see /v1/domains")]
Optional = Annotated[str | None, Query(min_length=1, max_length=LONGEST)]
Count = Annotated[int, Query(ge=1, le=10_000, description="places of the list")]
PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"model": answers.Problem, "description": "a name that nobody knows"},
    422: {"model": answers.Problem, "description": "a question that cannot be answered as it is"},
    503: {"model": answers.Problem, "description": "the database is gone; Retry-After says when to come again"},
}


def create(settings: Settings | None = None) -> Any:
    """The service as an ASGI app; settings come from the environment where none are given."""
    from pclf import __version__

    settings = settings or Settings.from_environment()
    log = Log(settings.log_level, settings.log_ids)
    desk = Desk(settings, log)

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        await desk.open()
        yield
        await desk.close()

    app = FastAPI(title="pclf", version=__version__, lifespan=alive, docs_url=None, redoc_url=None,
                  openapi_url="/openapi.json", description="Recommendations across catalogues: lists with intervals "
                  "and reasons for known people, visitors and guests.")
    if settings.cors:
        from starlette.middleware.cors import CORSMiddleware

        app.add_middleware(CORSMiddleware, allow_origins=list(settings.cors), allow_headers=["*"],
                           allow_methods=["GET", "POST", "PUT", "DELETE"])
    _answer_errors(app)
    _reading(app, desk)
    _writing(app, desk)
    _looking_after(app, desk)
    _page(app)
    return Gate(app, desk, settings, log)


def _reading(app: FastAPI, desk: Desk) -> None:
    """Lists, predictions, items."""

    @app.post("/v1/recommend", response_model=answers.List, responses=PROBLEMS, tags=["lists"])
    async def recommend_to_a_guest(asked: answers.GuestQuestion) -> Response:
        """A list for somebody who tells what they like. Nothing is stored."""
        return _json(await desk.recommend_guest(asked))

    @app.get("/v1/users/{id:path}/recommend", response_model=answers.List, responses=PROBLEMS, tags=["lists"])
    async def recommend(id: Id, asked: Annotated[answers.ListQuestion, Query()]) -> Response:
        """A list for somebody by id: known in the catalogue, a visitor from another, or new."""
        return _json(await desk.recommend(_clean(id), asked.domain, asked.n, asked.explain, asked.rank_by,
                                          asked.user_domain))

    @app.get("/v1/lists/{id}/next", response_model=answers.List, responses=PROBLEMS, tags=["lists"])
    async def next_page(id: Id, n: Count = 10, explain: bool = False) -> Response:
        """What comes after a list that was shown to a user, without what was shown."""
        return _json(await desk.next_page(_clean(id), n, explain))

    @app.post("/v1/predict", response_model=answers.Predictions, responses=PROBLEMS, tags=["items"])
    async def predict(asked: answers.PredictQuestion) -> Response:
        """What somebody will think of some items."""
        return _json(await desk.predict(asked))

    @app.get("/v1/items/{domain}/{id:path}/similar", response_model=answers.Similar, responses=PROBLEMS, tags=["items"])
    async def similar(domain: Id, id: Id, to: Optional = None, n: Count = 10) -> Response:
        """Items that are liked by the same people or, in another catalogue, by the same tastes."""
        return _json(await desk.similar(domain, _clean(id), n, to))

    @app.get("/v1/search", response_model=answers.Found, responses=PROBLEMS, tags=["items"])
    async def search(domain: DomainName, q: Annotated[str, Query(max_length=LONGEST)] = "", n: Count = 8) -> Response:
        """Titles with all these words; without any, the most rated ones."""
        return _json(await desk.search(domain, q, n))

    @app.get("/v1/domains", response_model=answers.Domains, tags=["items"])
    async def domains() -> Response:
        """The catalogues, with their scales."""
        return _json(as_json(desk.domains()))

    @app.get("/v1/users/{id:path}/ratings", response_model=answers.Rated, responses=PROBLEMS, tags=["people"])
    async def ratings(id: Id) -> Response:
        """Everything that is known of a person."""
        return _json(await desk.ratings_of(_clean(id)))


def _writing(app: FastAPI, desk: Desk) -> None:
    """Ratings, items, events, and forgetting."""

    @app.put("/v1/ratings", response_model=answers.Kept, responses=PROBLEMS, tags=["people"])
    async def rate(asked: answers.RatingRows) -> Response:
        """Keep ratings. The last of a user and item counts, and counts at the next request."""
        return _model(await desk.rate(asked.ratings))

    @app.put("/v1/items", response_model=answers.Kept, responses=PROBLEMS, tags=["items"])
    async def describe(asked: answers.ItemRows) -> Response:
        """Keep items with their titles and attributes; models know them from the next refit on."""
        return _model(await desk.describe(asked.items))

    @app.put("/v1/events", response_model=answers.Kept, responses=PROBLEMS, tags=["people"])
    @app.post("/v1/events", response_model=answers.Kept, responses=PROBLEMS, tags=["people"], operation_id="events")
    async def happened(asked: answers.EventRows) -> Response:
        """Keep what people did: clicks on a list, plays. The same event told twice is one."""
        return _model(await desk.happened(asked.events))

    @app.delete("/v1/users/{id:path}", response_model=answers.Forgotten, responses=PROBLEMS, tags=["people"])
    async def forget(id: Id) -> Response:
        """Forget a person: in the store and in answers now, in the model's file with the next refit."""
        return _model(await desk.forget(_clean(id)))


def _looking_after(app: FastAPI, desk: Desk) -> None:
    """Refits, health, metrics."""

    @app.post("/v1/refit", response_model=answers.RefitAnswer, responses=PROBLEMS, tags=["operation"], status_code=202)
    async def refit() -> Response:
        """Learn anew from everything, in a process of its own."""
        return _model(await desk.refit(), 202)

    @app.post("/v1/rollback", response_model=answers.RollbackAnswer, responses=PROBLEMS, tags=["operation"])
    async def roll_back() -> Response:
        """Go back to the model version before this one."""
        return _model(await desk.roll_back())

    @app.get("/v1/status", tags=["operation"])
    async def status() -> Response:
        """What the operator's page shows: versions, refits, traffic, coverage, bridges."""
        return _json(as_json(await desk.status()))

    @app.get("/health/live", tags=["operation"])
    async def live() -> Response:
        """Whether the process runs."""
        return _json(b'{"status":"live"}')

    @app.get("/health/ready", tags=["operation"], responses={503: {"model": answers.Problem}})
    async def ready() -> Response:
        """Whether questions are answered, and whether ratings can be kept."""
        good = await desk.follower.up_to_date()
        return _json(as_json({"status": "ready", "model": desk.live.version.version, "database": good}))

    @app.get("/metrics", tags=["operation"])
    async def metrics() -> Response:
        """For Prometheus."""
        return Response(desk.metrics.text(await desk.facts()), media_type="text/plain; version=0.0.4")


def _page(app: FastAPI) -> None:
    """The page and its few files, by name: no path leads anywhere else."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", media_type="text/html")

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in FILES:
            raise HTTPException(404, "there is no such file.")
        return FileResponse(PAGE / name, media_type=FILES[name])


def _answer_errors(app: FastAPI) -> None:
    """Everything that goes wrong is answered as an object, with what was wrong."""

    async def of_ours(request: Request, error: Exception) -> Response:
        if isinstance(error, StoreError):
            return problem(request, 503, "the database cannot be used at the moment: nothing was kept.",
                           {"Retry-After": RETRY})
        return problem(request, 404 if isinstance(error, UnknownNameError) else
                       409 if isinstance(error, DataError) else 422, str(error))

    async def of_questions(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(request, 422, in_words(error.errors()))

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers, said = dict(error.headers or {}), str(error.detail)
        if said == "Not Found":
            said = "nothing is at this address; /openapi.json lists what there is."
        elif error.status_code == 405:
            said = f"this address does not answer {request.method}; it answers {headers.get('Allow', 'nothing')}."
        return problem(request, error.status_code, said, headers)

    async def of_us(request: Request, error: Exception) -> Response:
        return problem(request, 500, "something is wrong here; the log has it under this request id.")

    app.add_exception_handler(PclfError, of_ours)
    app.add_exception_handler(RequestValidationError, of_questions)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_us)


def problem(request: Request, status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    body = {"error": visible(error)[:1000], "request_id": request.scope.get("request_id", "")}
    return Response(as_json(body), status, headers, "application/json")


def _clean(id: str) -> str:
    try:
        return check_text(id)
    except ValueError as error:
        raise HTTPException(422, f"id: {error}") from None


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _model(answer: Any, status: int = 200) -> Response:
    return Response(as_json(answer.model_dump()), status, media_type="application/json")
