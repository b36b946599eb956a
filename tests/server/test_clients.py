"""Other people's clients, as they come: each says its own messages again, streams, and finds nothing refused.

Each is tried where it is installed: `pip install -e '.[clients]'`, and `npm install openai` somewhere on NODE_PATH.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.server.clients import CLIENTS, HI, MORE
from tests.server.harness import serving


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running
        assert "no effect" not in running.log  # they send nothing that is not known here


@pytest.mark.parametrize("name", CLIENTS)
def test_client(server, name):
    try:
        is_there = importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        pytest.skip(f"{name} is not installed")
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # or it asks the internet
    command = [sys.executable, "-m", "tests.server.clients", name, f"{server.url}/v1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


SCRIPT = """
const OpenAI = require('openai');
const client = new OpenAI({ baseURL: process.argv[1], apiKey: 'none', maxRetries: 0 });
const [hi, more] = JSON.parse(process.argv[2]);
(async () => {
  const asked = { model: 'fake', messages: [hi], max_tokens: 8, seed: 1 };
  const answer = await client.chat.completions.create(asked);
  const again = await client.chat.completions.create({ ...asked, messages: [hi, answer.choices[0].message, more] });
  let text = '';
  for await (const chunk of await client.chat.completions.create({ ...asked, stream: true }))
    text += chunk.choices[0].delta.content ?? '';
  const helped = await client.chat.completions.stream(asked).finalChatCompletion();
  for await (const _ of client.chat.completions.stream({ ...asked, max_tokens: 4000 })) break;
  const model = (await client.models.retrieve('fake')).id;
  console.log(JSON.stringify([model, text, ...[answer, again, helped].map((a) => a.choices[0].message.content)]));
})();
"""


def test_openai_for_javascript(server):
    node = shutil.which("node")
    if node is None or subprocess.run([node, "-e", "require('openai')"], check=False, capture_output=True).returncode:
        pytest.skip("openai for JavaScript is not installed")
    command = [node, "-e", SCRIPT, f"{server.url}/v1", json.dumps([HI, MORE])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    model, streamed, answer, again, helped = json.loads(done.stdout)
    assert model == "fake"
    assert streamed == answer == helped != ""
    assert again
    server.wait_idle()
