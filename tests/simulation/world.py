"""Import kjms into a simulated world: unchanged source, with the threads, clocks and chance of `threads`.

`install` puts an import hook in place. Modules of kjms get an ``__import__`` that supplies the modules of `threads`,
and a call before each statement of ``kjms.engine`` and ``kjms.client``, where a run may switch threads. The standard
library and all other packages keep the real modules.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import importlib.machinery
import os
import pkgutil
import sys
import types
from typing import Any, Final

from tests.simulation import loops, threads

PACKAGES: Final = ("aio", "engine", "client", "testing", "mapping", "message", "txn", "selector", "observe")
SWITCHED: Final = ("kjms.engine", "kjms.client")  # where a run may switch between statements
INTERRUPTS: Final = "kjms.engine.interrupts"  # its conditions and events rest on the insides of those of Python
MARK: Final = "_simulated_statement"


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if level == 0 and name in threads.MODULES:
        return threads.MODULES[name]
    return builtins.__import__(name, globals, locals, fromlist, level)


def _statement() -> None:
    if threads.sched is not None:
        threads.sched.statement()


_builtins: Final = {**vars(builtins), "__import__": _import, MARK: _statement}


class _Marker(ast.NodeTransformer):
    """Puts a call of `_statement` before each statement of each function."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        self._mark(node)
        return node

    def _mark(self, node: ast.AST) -> None:
        for field in ("body", "orelse", "finalbody", "handlers"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and inner:
                setattr(node, field, self._marked(inner))

    def _marked(self, inner: list[Any]) -> list[Any]:
        marked: list[Any] = []
        for number, each in enumerate(inner):
            is_docstring = number == 0 and isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            is_counted = isinstance(each, ast.stmt) and not isinstance(each, (ast.Global, ast.Nonlocal, ast.Pass))
            if is_counted and not is_docstring:
                call = ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [], []))
                marked.append(ast.fix_missing_locations(ast.copy_location(call, each)))
            if not isinstance(each, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
                self._mark(each)
            marked.append(each)
        return marked


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        tree = ast.parse(self.get_data(self.path), self.path)
        if self.name.startswith(SWITCHED):
            tree = _Marker().visit(tree)
        module.__dict__["__builtins__"] = _builtins
        exec(compile(tree, self.path, "exec", dont_inherit=True), module.__dict__)
        if self.name == INTERRUPTS:
            module.__dict__.update(Condition=threads.Condition, Event=threads.Event)


class _Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] != "kjms":
            return None
        spec = super().find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def _anew(name: str) -> types.ModuleType:
    """Return the module *name* of the standard library, loaded once more on the threads of the simulation."""
    module = importlib.import_module(name)
    made = types.ModuleType(name)
    assert module.__file__ is not None
    _Loader(name, module.__file__).exec_module(made)
    return made


def install() -> None:
    """Import kjms into the simulated world.

    All of it is imported at once: an import in the middle of a run would take another way the second time.

    Raises:
        RuntimeError: kjms has been imported before.
    """
    if "kjms" in sys.modules:
        raise RuntimeError("kjms was imported before the simulation was installed")
    futures = threads.MODULES["concurrent.futures"] = _anew("concurrent.futures._base")
    loops.ThreadPool.Future = futures.Future
    futures.ThreadPoolExecutor = loops.ThreadPool  # type: ignore[attr-defined]
    asyncio.futures.concurrent = types.SimpleNamespace(futures=futures)  # type: ignore[attr-defined]
    sys.meta_path.insert(0, _Finder)
    os.getpid = lambda: 4242  # a part of names
    import kjms

    for each in pkgutil.walk_packages(kjms.__path__, "kjms."):
        if each.name.split(".")[1] in PACKAGES:
            importlib.import_module(each.name)
