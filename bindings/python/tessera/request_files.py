"""Files of requests: many texts by one call."""
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping

from . import arguments, raw
from .arguments import Options
from .errors import check, result, text
from .handle import Pointer, use
from .runtime import Runtime, chosen_runtime
from .work import Progress, interruptible

if TYPE_CHECKING:
    from .model import Model


def generate_file(model: Model, path: Any, out: Any, *, named_adapters: Mapping[str, Any] | None = None, ids: bool = False,
                  json_schema: str = "", regex: str = "", grammar: str = "", runtime: Runtime | None = None,
                  progress: Progress | None = None, **options: Any) -> dict[str, Any]:
    """Generates what the lines of a file ask for, each a JSON object such as {"prompt": "Once"}, into a file with a line of results for
    each. named_adapters: paths by the names that lines may have under "adapter"; ids: with token ids; json_schema, regex, grammar: of
    lines without one. Other options are those of an Engine. Failed lines have their error in their results, and are counted in the report."""
    from .model import Model
    runtime = chosen_runtime(runtime)
    own = {key: value for key, value in (("json_schema", json_schema), ("regex", regex), ("grammar", grammar)) if value}
    if named_adapters:
        own["adapters"] = json.dumps({name: str(where) for name, where in named_adapters.items()})
    source, target = arguments.path("path", path), arguments.path("out", out)
    with Options({**own, "ids": ids}) as o:
        pointer = interruptible(lambda: Pointer("request file", raw.tsr_request_file_free,
                                                raw.tsr_request_file_open(source, target, o), exclusive=True), lambda: None)
    try:
        with use(model, Model, "model") as m, runtime._pointer as r, Options(options) as o, pointer as c:
            check(interruptible(lambda: raw.tsr_request_file_start(c, r, m, o), runtime.cancel))
        done = 0.0
        with pointer as c:
            while done < 1:
                done = result(interruptible(lambda: raw.tsr_request_file_step(c), lambda: None))
                if progress is not None:
                    progress(done)
            return json.loads(text(raw.tsr_request_file_report(c)))
    finally:
        pointer.close()
