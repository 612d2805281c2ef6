"""The adapter for SYCL, with the runtime and compiler from Intel's packages on PyPI, for Linux on x86-64 only."""

from __future__ import annotations

from kforge.inline import ToolchainError
from kforge.inline.sycl import packages
from kforge.platforms import host
from kforge.platforms.elsewhere import ElsewhereAdapter


class Adapter(ElsewhereAdapter):
    """The adapter for SYCL C++ on Intel GPUs and on the host's processors."""

    language = "sycl"
    driver = (
        "libsycl", "libur_", "libze_", "libigc", "libOpenCL", "libintelocl", "libcommon_clang", "libtbb", "libumf",
        "libhwloc",
    )  # fmt: skip
    nodes = ("/etc/OpenCL/vendors", "/dev/dri/*", "/dev/dxg")

    def probe(self) -> str | None:
        # checked first: on other machines, the advice to install the packages would be useless
        if (reason := packages.unsuited_machine()) is not None:
            return reason
        try:
            packages.find()
        except ToolchainError as error:
            return f"{str(error).partition(';')[0]}; install it: {self.manifest.install}"
        return super().probe()

    def versions(self) -> dict[str, str]:
        if self.probe() is not None:
            return super().versions()
        return {**super().versions(), packages.RUNTIME: packages.find().version, "driver": self.told()["driver"]}

    def features(self) -> frozenset[str]:
        told = self.told()
        return frozenset(name for name, there in (("fp64", told["doubles"]), ("fp16", told["halves"])) if there)

    def environment(self) -> dict[str, str]:
        # the number of threads in which Intel's driver for processors runs thread groups
        return {"DPCPP_CPU_NUM_CUS": str(host.threads())}
