"""How a request proves where it comes from (C-09). Pure: time is an argument, keys are handed in.

| module | asks |
|---|---|
| `signing` | what is signed, and what does a signer promise? |
| `keys` | which text is which key? |
| `standard_webhooks` | `webhook-signature`, HMAC-SHA256 and Ed25519 |
| `http_message` | `signature` and `signature-input`: RFC 9421, with RFC 9530's content digest |
| `cavage` | `signature` as today's ActivityPub servers read it |
| `schemes` | which of them does a target's `signing` name? |
| `verifying` | did who holds the key sign what came in? |
"""
