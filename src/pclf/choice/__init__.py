"""Choice: what people pick. Every data set of ratings is also a log of who chose what.

    rows   = [graded(domain) for domain in data.domains.values()]
    choice = learn(rows, people=data.user_rows)
    choice.scores(1, [films, books])          # of all items of the second domain, for some people

`items` has the model of one catalogue, `crossing` what the choices in other catalogues say, `validate` how settings are
found, `sums` what must be summed over people, who may be in memory or on disk, and `gram` the fast sums.
"""

from pclf.choice.learn import Choice, learn, learn_from
from pclf.choice.rows import Rows, graded
from pclf.choice.sums import Chosen, Source

__all__ = ["Choice", "Chosen", "Rows", "Source", "graded", "learn", "learn_from"]
