"""The digest that ``certificate.json`` states of its own content: tells a file that was changed from one that was not.

It protects against accidents and careless hands alone. Whoever changes a certificate on purpose computes it again, and
is found by the check of what the certificate states.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

DIGEST_KEY = "digest"
"""Where ``certificate.json`` keeps it."""


def content_digest(content: Mapping[str, Any]) -> str:
    """sha256 of the JSON values of ``certificate.json`` without their digest: keys sorted, no spaces, UTF-8."""
    others = {key: value for key, value in content.items() if key != DIGEST_KEY}
    text = json.dumps(others, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_unchanged(content: Mapping[str, Any]) -> bool:
    """Whether the content is that which its digest was computed of."""
    return content.get(DIGEST_KEY) == content_digest(content)
