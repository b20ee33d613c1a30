"""The service: a saved model behind HTTP, on a database, with a page.

`store` keeps what people say and `shelf` the model versions; `fresh` follows the store and `lists` answers from both;
`refit` learns anew in a process of its own; `app` is the door, with `keys`, `metrics` and `logs` beside it.
"""
