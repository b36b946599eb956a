"""The server against requests made up from its own OpenAPI document: no 5xx, nothing undocumented, nothing left."""

import os
import shutil
import subprocess

import pytest

from tests.server.harness import serving

BINARY = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
CHECKS += ",negative_data_rejection,unsupported_method"


@pytest.mark.skipif(BINARY is None, reason="schemathesis is not installed: pip install -e '.[fuzz]'")
def test_made_up_requests(tmp_path):
    #   few tokens and small prompts: what is fuzzed is the door
    options = ["server.max_output_tokens=64", "engine.num_blocks=256", "engine.max_model_len=512"]
    with serving(*(word for option in options for word in ("--set", option))) as server:
        options = ["--max-examples", os.environ.get("FUZZ_EXAMPLES", "25"), "--seed", "1", "--checks", CHECKS]
        options += ["--generation-database", "none", "--request-timeout", "20", "--no-color"]
        command = [BINARY, "run", f"{server.url}/openapi.json", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        server.wait_idle()
        assert server.value("tl_engine_conservation_violations_total") == 0
        assert server.value("tl_engine_requests_failed_total") == 0
