#!/usr/bin/env python3
"""sbom.py BUILD: the components and requirements of the build in this folder, as an SPDX 2.3 document.

Libraries and versions come from Meson; libraries that are opened at run time have no version.
"""
import json
import pathlib
import subprocess
import sys
import uuid

LICENCES = {"jansson": "MIT", "libxxhash": "BSD-2-Clause", "zlib": "Zlib"}
AT_RUN_TIME = {"libcuda": "the CUDA driver", "libnvrtc": "NVRTC, if a kernel is not in the cache"}


def introspect(build, what):
    return json.loads(subprocess.run(["meson", "introspect", build, f"--{what}"], check=True, capture_output=True).stdout)


def package(name, version, licence, comment):
    return {"name": name, "SPDXID": f"SPDXRef-{name}", "versionInfo": version, "licenseDeclared": licence,
            "licenseConcluded": licence, "copyrightText": "NOASSERTION", "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "comment": comment}


def main(build):
    project = introspect(build, "projectinfo")
    commit, created = subprocess.run(["git", "log", "-1", "--format=%H %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"],
                                     check=True, capture_output=True, text=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin"}
                                     ).stdout.split()
    smelt = package("smelt", project["version"], "Apache-2.0", f"commit {commit}")
    found = [package(each["name"], each["version"], LICENCES[each["name"]], "linked")
             for each in introspect(build, "dependencies") if each["name"] in LICENCES]
    needed = [package(name, "NOASSERTION", "LicenseRef-NVIDIA", f"opened at run time: {what}")
              for name, what in AT_RUN_TIME.items()]
    if len({each["name"] for each in found}) != len(LICENCES):
        sys.exit(f"sbom: {build} lacks one of {', '.join(LICENCES)}: is it a whole build?")
    packages = [smelt, *{each["name"]: each for each in found}.values(), *needed]
    json.dump({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"smelt-{project['version']}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, commit)}",
        "creationInfo": {"created": created, "creators": ["Tool: scripts/sbom.py"]},
        "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-NVIDIA", "extractedText":
                                        "NVIDIA's licence of the CUDA toolkit and driver"}],
        "packages": packages,
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-smelt"},
            *({"spdxElementId": "SPDXRef-smelt", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": each["SPDXID"]}
              for each in packages[1:])],
    }, sys.stdout, indent=1)
    print()


if not pathlib.Path(sys.argv[1], "meson-info").is_dir():
    sys.exit(f"sbom: {sys.argv[1]} is not a build folder")
main(sys.argv[1])
