"""Choice: what people pick. Every data set of ratings is also a log of who chose what.

    rows   = [graded(domain) for domain in data.domains.values()]
    choice = learn(rows, people=data.user_rows)
    choice.scores(1, [films, books])          # of all items of the second domain, for some people

`items` has the model of one catalogue, `crossing` what the choices in other catalogues say, `validate` how settings are
found, and `gram` the sums.
"""

from pclf.choice.learn import Choice, learn
from pclf.choice.rows import Rows, graded

__all__ = ["Choice", "Rows", "graded", "learn"]
