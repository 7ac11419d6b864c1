"""Installed packages."""

from __future__ import annotations

STATUS = """Package: rocm-core
Status: install ok installed
Version: 6.2.0.60200-66~22.04

Package: rocminfo
Status: deinstall ok config-files
Version: 1.0.0.60200-66~22.04

Package: rocs
Status: install ok installed
Version: 4:22.12.3-1

Package: hippo
Status: install ok installed
Version: 1

Package: miopen-hip
Status: install ok installed
Description: not a version
 Version: 9
Version: 3.2.0.60200-66~22.04

Package: linux-firmware
Status: install ok installed
Version: 20220329.git681281e4-0ubuntu3.26
"""


def test_dpkg(build):
    build.file("var/lib/dpkg/status", STATUS)
    found = build.detect()
    assert found.value("packages") == {
        "linux-firmware": "20220329.git681281e4-0ubuntu3.26",
        "miopen-hip": "3.2.0.60200-66~22.04",
        "rocm-core": "6.2.0.60200-66~22.04",
    }
    assert found.facts["packages"].source == "/var/lib/dpkg/status"


def test_dpkg_of_a_desktop_with_everything_on_it(build):
    filler = "Package: foo\nStatus: install ok installed\nVersion: 1\nDescription: " + "x" * 400 + "\n\n"
    build.file("var/lib/dpkg/status", filler * 5000 + STATUS)
    assert len(build.detect().value("packages")) == 3


def test_pacman(build):
    for name in (
        "rocm-core-6.2.4-2",
        "hip-runtime-amd-6.2.4-1",
        "linux-firmware-20241111.b5885ec5-1",
        "zlib-1.3-1",
    ):
        build.file(f"var/lib/pacman/local/{name}/desc", "")
    assert build.detect().value("packages") == {
        "hip-runtime-amd": "6.2.4-1",
        "linux-firmware": "20241111.b5885ec5-1",
        "rocm-core": "6.2.4-2",
    }


def test_rpm_gives_names_alone(build):
    build.file("usr/lib/sysimage/rpm/rpmdb.sqlite", b"SQLite format 3\0")
    build.file("usr/share/licenses/rocm-runtime/LICENSE", "")
    build.file("usr/share/licenses/bash/LICENSE", "")
    build.file("usr/share/doc/rocminfo/README", "")
    found = build.detect()
    assert found.value("packages") == {"rocm-runtime": None, "rocminfo": None}
    assert "names alone" in found.facts["packages"].source


def test_no_package_manager(build):
    found = build.detect()
    assert found.value("packages") is None
    assert "no database of rpm" in found.facts["packages"].source


def test_driver_as_source(build):
    assert build.detect().value("amdgpu.dkms") is None
    build.file("var/lib/dkms/amdgpu/6.12.12-2147987.24.04/source/dkms.conf", "")
    build.link("var/lib/dkms/amdgpu/kernel-6.8.0-49-generic-x86_64", "6.12.12-2147987.24.04/6.8.0")
    assert build.detect().value("amdgpu.dkms") == ["6.12.12-2147987.24.04"]
