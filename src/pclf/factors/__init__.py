"""The factor model over all domains: rows of people and things, the population they come from, and how both are
learned.

`rows` has the formula, `population` the prior that ties rows of several domains together, `choices` and `learn` the
inference, `fitted` what is left of it.
"""
