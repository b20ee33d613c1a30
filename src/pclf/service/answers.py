"""Questions and answers of the API, as the OpenAPI document shows them."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pclf.errors import UNSEEN

LONGEST = 200              # characters of an id
TEXT = 500                 # of a title
COLUMNS = 50               # attributes of an item


def _as_text(value: Any) -> Any:
    """Ids may be numbers: 17 is "17"."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _no_flag(value: Any) -> Any:
    """True is no 1."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number; got {str(value).lower()}")
    return value


def check_text(value: str) -> str:
    if UNSEEN.search(value) or "\ufffe" in value or "\uffff" in value:
        raise ValueError("must be text without control characters")
    return value


Id = Annotated[str, BeforeValidator(_as_text), Field(min_length=1, max_length=LONGEST), AfterValidator(check_text),
               WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST},
                                         {"type": "integer", "minimum": -2**63, "maximum": 2**63 - 1}]})]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(check_text)]
Number = Annotated[float, BeforeValidator(_no_flag), Field(allow_inf_nan=False)]
Value = Annotated[str, Field(max_length=TEXT), AfterValidator(check_text)] | Number | bool


class Strict(BaseModel):
    """Unknown names are refused: a misspelt one would be ignored."""

    model_config = ConfigDict(extra="forbid")


class GuestQuestion(Strict):
    """What somebody likes who is not known and will not be remembered."""

    domain: Name = Field(description="the catalogue to recommend from", examples=["books"])
    ratings: dict[Name, dict[Name, Number]] = Field(default_factory=dict, max_length=100,
                                                   description="domain: {item: rating}",
                                                   examples=[{"films": {"A Kiss in Nara": 5}}])
    n: int = Field(10, ge=1, description="places of the list")
    exclude: list[Id] = Field(default_factory=list, max_length=5000, description="items to leave out")
    explain: bool = Field(False, description="say why, for each item")
    rank_by: Name | None = Field(None, description="liked, chosen or rating")
    model: int | None = Field(None, ge=1, description="a version that is kept; the current one by default")


class ListQuestion(Strict):
    """What is asked of a list for somebody by id."""

    domain: str = Field(min_length=1, max_length=LONGEST, description="a catalogue, see /v1/domains")
    n: int = Field(10, ge=1, le=10_000, description="places of the list")
    explain: bool = Field(False, description="say why, for each item")
    rank_by: str | None = Field(None, min_length=1, max_length=LONGEST, description="liked, chosen or rating")
    user_domain: str | None = Field(None, min_length=1, max_length=LONGEST, description="where the id is meant, if "
                                    "it may be several people")


class PredictQuestion(Strict):
    """Somebody known, or a guest's ratings, and items."""

    domain: Name
    items: list[Id] = Field(min_length=1, max_length=1000)
    user: Id | None = None
    ratings: dict[Name, dict[Name, Number]] = Field(default_factory=dict, max_length=100)


class Item(BaseModel):
    item: str | int | float | bool | None
    title: str
    score: float = Field(description="what the list is sorted by")
    rating: float = Field(description="the expected rating")
    interval: list[float] = Field(description="where the rating lies with a probability of 80 %")
    distribution: list[float] = Field(description="the probability of each value of the scale")
    why: str | None = None


class List(BaseModel):
    """A list. `basis` says what it rests on: known, visitor, guest, or popular for somebody new."""

    id: str = Field(description="what events refer to")
    model: int = Field(description="the model version")
    domain: str
    basis: str
    items: list[Item]


class Predictions(BaseModel):
    model: int
    domain: str
    basis: str
    items: list[Item]


class SimilarItem(BaseModel):
    item: str | int | float | bool | None
    title: str
    score: float


class Similar(BaseModel):
    model: int
    domain: str
    items: list[SimilarItem]


class FoundItem(BaseModel):
    item: str | int | float | bool | None
    title: str
    ratings: int


class Found(BaseModel):
    domain: str
    items: list[FoundItem]


class DomainFacts(BaseModel):
    name: str
    users: int
    items: int
    ratings: int
    scale: list[float]
    events: bool


class Domains(BaseModel):
    model: int
    ranks: list[str]
    domains: list[DomainFacts]


class RatingRow(Strict):
    user: Id
    domain: Name
    item: Id
    rating: Number
    title: Annotated[str, Field(max_length=TEXT), AfterValidator(check_text)] | None = None
    attributes: dict[Name, Value | list[Value]] | None = Field(None, max_length=COLUMNS)


class RatingRows(Strict):
    """Rows are looked at one by one: those that cannot be used are rejected, with the reason, and the others kept."""

    ratings: list[Annotated[RatingRow | Any, Field(union_mode="left_to_right")]] = Field(min_length=1)


class ItemRow(Strict):
    domain: Name
    item: Id
    title: Annotated[str, Field(max_length=TEXT), AfterValidator(check_text)] | None = None
    attributes: dict[Name, Value | list[Value]] | None = Field(None, max_length=COLUMNS)


class ItemRows(Strict):
    items: list[Annotated[ItemRow | Any, Field(union_mode="left_to_right")]] = Field(min_length=1)


class EventRow(Strict):
    """Something done. Without an id, the same event told twice is one."""

    user: Id
    domain: Name
    item: Id
    event: Annotated[Name, Field(max_length=40)] = "click"
    list: Name | None = Field(None, description="the id of the list that it was on")
    id: Name | None = None
    at: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None = Field(None, description="Unix time")


class EventRows(Strict):
    events: list[Annotated[EventRow | Any, Field(union_mode="left_to_right")]] = Field(min_length=1)


class Rejected(BaseModel):
    row: int
    reason: str


class Kept(BaseModel):
    """What became of a batch."""

    accepted: int
    rejected: list[Rejected]
    new_users: int = 0
    new_items: int = 0


class Forgotten(BaseModel):
    forgotten: bool
    rows: int = Field(description="deleted from the store")
    store: str
    model: str
    refit_due: float | None = Field(description="when the next refit is due, in seconds since 1970; None if none is")


class Rated(BaseModel):
    """Everything that is known of a person."""

    known: bool
    ratings: dict[str, dict[str, float]]
    titles: dict[str, dict[str, str]]


class RefitAnswer(BaseModel):
    refit: str
    state: str


class RollbackAnswer(BaseModel):
    model: int


class Problem(BaseModel):
    """What went wrong, where, and the way out."""

    error: str
    request_id: str
