"""Executors from their URLs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from ematix_flow.executors.protocol import Executor
from ematix_flow.foundation.errors import ConfigError
from ematix_flow.foundation.names import did_you_mean, nearest_name
from ematix_flow.foundation.redact import is_secret_name, mask, remember_secret

EXAMPLES = {
    "subprocess": "subprocess://",
    "subprocess+python": "subprocess+python://",
    "inprocess": "inprocess://",
    "k8s": "k8s://etl?image=registry/flow:1",
    "lambda": "lambda://flow-worker",
    "spark-submit": "spark-submit://spark://host:7077",
}
_CONF = "conf."


@dataclass(frozen=True)
class _Address:
    """A parsed URL, `scheme://place?name=value&name=value`; a name may be repeated."""

    scheme: str
    place: str
    params: tuple[tuple[str, str], ...]

    def only(self, *known: str, anything_below: str = "") -> None:
        """Raise ConfigError for a parameter that is not one of these."""
        for name, _ in self.params:
            if name not in known and not (anything_below and name.startswith(anything_below)):
                hint = did_you_mean(name, known) if known else f"write {EXAMPLES[self.scheme]}"
                raise ConfigError(f"{self.scheme}:// has no parameter {name!r}", hint=hint)

    def one(self, *names: str) -> str | None:
        """Return the parameter of any of these names, or None; raise ConfigError if it is given twice."""
        values = [value for name, value in self.params if name in names]
        if len(values) > 1:
            raise ConfigError(f"{self.scheme}:// has {names[0]} twice", hint="keep one of them")
        return (values[0] or None) if values else None

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a parameter."""
        return tuple(value for known, value in self.params if known == name and value)

    def number(self, name: str) -> int | None:
        """Return a parameter that is a whole number, or None; raise ConfigError for anything else."""
        text = self.one(name)
        if text is not None and not text.isdigit():
            raise ConfigError(f"{name}={text} is no whole number", hint=f"for example {name}=60")
        return int(text) if text is not None else None


def executor_from_url(url: str) -> Executor:
    """Return the executor of a URL, see docs/executors.md; raise ConfigError for an invalid one.

    >>> executor_from_url("lambda://flow-worker?qualifier=prod").has_ended(None) is None
    True
    """
    scheme, separator, rest = url.strip().partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in EXAMPLES:
        raise _unknown(scheme, has_scheme=bool(separator))
    place, _, query = rest.partition("?")
    pairs = tuple(
        (unquote(name), unquote(value)) for name, _, value in (p.partition("=") for p in query.split("&") if p)
    )
    for name, value in pairs:
        if is_secret_name(name) and "${" not in value:
            remember_secret(value)
    return _MAKERS[scheme](_Address(scheme, unquote(place), pairs))


def _on_this_machine(address: _Address) -> Executor:
    from ematix_flow.executors.inprocess import InprocessExecutor
    from ematix_flow.executors.subprocess import SubprocessExecutor, python_subprocess_executor

    address.only()
    if address.place:
        raise ConfigError(
            f"nothing belongs behind {address.scheme}://, and there is {mask(address.place)!r}",
            hint=f"write {address.scheme}://",
        )
    if address.scheme == "inprocess":
        return InprocessExecutor()
    return SubprocessExecutor() if address.scheme == "subprocess" else python_subprocess_executor()


def _kubernetes(address: _Address) -> Executor:
    from ematix_flow.executors.kubernetes import KubernetesJobExecutor, PodOptions
    from ematix_flow.executors.kubernetes_jobs import require_client

    address.only(
        "image", "service-account", "sa", "env-from-secret", "image-pull-policy", "image-pull-secret", "cpu", "memory",
        "label", "backoff-limit", "ttl",
    )  # fmt: skip
    require_client()
    ttl = address.number("ttl")
    return KubernetesJobExecutor(
        namespace=address.place.strip("/"),
        image=address.one("image") or "",
        service_account=address.one("service-account", "sa"),
        labels=dict(_labels(address.all("label"))),
        backoff_limit=address.number("backoff-limit") or 0,
        ttl_seconds_after_finished=3600 if ttl is None else ttl,
        pod=PodOptions(
            env_from_secrets=address.all("env-from-secret"),
            image_pull_policy=address.one("image-pull-policy"),
            image_pull_secret=address.one("image-pull-secret"),
            cpu=address.one("cpu"),
            memory=address.one("memory"),
        ),
    )


def _labels(pairs: Iterable[str]) -> Iterable[tuple[str, str]]:
    for label in pairs:
        name, separator, value = label.partition("=")
        if not separator:
            raise ConfigError(f"label={label} has no value", hint="write label=team=data")
        yield name, value


def _lambda(address: _Address) -> Executor:
    from ematix_flow.executors.lambda_ import LambdaExecutor, require_client

    address.only("qualifier", "region", "endpoint")
    require_client()
    return LambdaExecutor(
        function_name=address.place.strip("/"),
        qualifier=address.one("qualifier"),
        region=address.one("region"),
        endpoint=address.one("endpoint"),
    )


def _spark_submit(address: _Address) -> Executor:
    from ematix_flow.executors.spark_submit import SparkSubmitExecutor

    address.only("deploy-mode", "py-files", "conf.spark.…", anything_below=f"{_CONF}spark.")
    conf = {name: address.one(name) or "" for name, _ in address.params if name.startswith(_CONF)}
    return SparkSubmitExecutor(
        master=address.place.rstrip("/"),
        deploy_mode=address.one("deploy-mode") or "client",
        conf={name.removeprefix(_CONF): value for name, value in conf.items()},
        py_files=[file for listed in address.all("py-files") for file in listed.split(",")],
    )


_MAKERS: dict[str, Callable[[_Address], Executor]] = {
    **dict.fromkeys(("subprocess", "subprocess+python", "inprocess"), _on_this_machine),
    "k8s": _kubernetes,
    "lambda": _lambda,
    "spark-submit": _spark_submit,
}


def _unknown(scheme: str, *, has_scheme: bool) -> ConfigError:
    every = f"use one of {', '.join(EXAMPLES.values())}"
    if not scheme:
        return ConfigError("the executor has an empty address", hint=every)
    near = nearest_name("k8s" if scheme == "kubernetes" else scheme, EXAMPLES)
    what = f"unknown executor address {mask(scheme)}://" if has_scheme else f"{mask(scheme)!r} has no scheme://"
    return ConfigError(what, hint=f"did you mean {EXAMPLES[near]}?" if near else every)
