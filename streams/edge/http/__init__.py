"""The HTTP call: one POST, one observation, and proof of the stage in which a fault struck.

| module | asks |
|---|---|
| `call` | what is sent, and what is kept of an answer? |
| `connection` | one request out, one answer in: what was seen? |
| `dial` | how does a vetted address become a connection? |
| `pool` | who may use or open a connection? |
| `transport` | the call as a whole, under one deadline |
| `face` | how do httpx's clients use it, and how do we use httpx's transports? |
"""
