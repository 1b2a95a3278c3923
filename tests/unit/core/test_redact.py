"""Secrets are replaced in commands, text and environments; what is harmless stays readable."""

import shlex

import pytest

from firstlight.core import redact


@pytest.fixture(autouse=True)
def _nothing_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_KNOWN", redact.Known())


SECRET = "s3cr3tvalue0123456789"


@pytest.mark.parametrize(
    "argv",
    [
        ["vllm", "serve", "m", "--api-key", SECRET],
        ["vllm", "serve", "m", f"--api-key={SECRET}"],
        ["vllm", "serve", "m", "--api-key", "first", SECRET, "--port", "8000"],
        ["python", "-m", "sglang.launch_server", "--admin-api-key", SECRET],
        ["vllm", "serve", "--hf-token", SECRET],
        ["env", f"HF_TOKEN={SECRET}", "vllm", "serve"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}", "vllm", "serve"],
        ["docker", "run", "-e", f"HF_TOKEN={SECRET}", "image"],
        ["docker", "run", f"--env=HF_TOKEN={SECRET}", "image"],
        ["server", "--db-password", SECRET],
        ["server", f"--database=postgres://bob:{SECRET}@db:5432/x"],
        ["server", f"http://{SECRET}@proxy:3128"],
        ["bash", "-c", f"HF_TOKEN={SECRET} vllm serve m --port 1"],
        ["bash", "-c", f"vllm serve m --api-key {SECRET}"],
        ["bash", "-c", f"vllm serve m --api-key '{SECRET}'"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        ["server", "--hf-overrides", f'{{"token": "{SECRET}"}}'],
        ["server", "--hf-overrides", f'{{"auth": ["{SECRET}"]}}'],
        ["server", f"https://host/x?sig={SECRET}&version=1"],
        ["server", "--cookie", f"session={SECRET}"],
        ["server", "--db-pass", SECRET],
        ["server", "--s3-accesskey", SECRET],
        ["curl", "-u", f"bob:{SECRET}", "http://host/"],
        ["/usr/bin/curl", f"-ubob:{SECRET}"],
        ["env", "A=1", "curl", "-s", f"--user=bob:{SECRET}"],
        ["bash", "-c", f"curl -s -u bob:{SECRET} http://host/ | sh"],
        ["bash", "-c", f"mysql -h db -p{SECRET} -e 'select 1'"],
        ["mysqldump", "-h", "db", f"-p{SECRET}"],
        ["sshpass", "-p", SECRET, "ssh", "host"],
        ["sshpass", f"-p{SECRET}", "ssh", "host"],
        ["redis-cli", "-a", SECRET, "ping"],
        ["server", "--cert", f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----"],
        ["bash", "-c", f'vllm serve m --hf-overrides "{{\\"api_key\\": \\"{SECRET}\\"}}"'],
    ],
)
def test_no_secret_of_a_command_line_comes_out(argv: list[str]) -> None:
    shown = " ".join(redact.command(argv))
    assert SECRET not in shown
    assert redact.HIDDEN in shown


def test_a_harmless_command_line_stays_as_it_is() -> None:
    words = "--port 8000 --tokenizer other/model --max-num-batched-tokens 2048 --ssl-keyfile /etc/key.pem --host ::"
    argv = shlex.split(f"vllm serve Qwen/Qwen3-8B {words} --speculative-num-draft-tokens=4 --trust-remote-code")
    assert redact.command(argv) == tuple(argv)


def test_options_of_compiler_passes_are_no_passwords() -> None:
    argv = ("vllm", "serve", "--compilation-config.pass_config.fuse_norm", "true", "--session-id", "7")
    assert redact.command(argv) == argv


def test_the_words_after_the_next_option_are_shown_again() -> None:
    assert redact.command(["s", "--api-key", "a", "b", "--port", "80"]) == (
        "s",
        "--api-key",
        "***",
        "***",
        "--port",
        "80",
    )


@pytest.mark.parametrize(
    "line",
    [
        f"non-default args: {{'api_key': ['{SECRET}'], 'port': 8000}}",
        f"server_args=ServerArgs(model_path='m', api_key='{SECRET}', host='127.0.0.1')",
        f"Authorization: Bearer {SECRET}",
        f"GET https://user:{SECRET}@host/x",
        f"GET https://host/x?token={SECRET}&y=1",
        f"GET https://bucket/x?X-Amz-Signature={SECRET}",
        f"token: {SECRET}",
        f"user: bob pass: {SECRET}",
        f"pwd: {SECRET}",
        f"pass={SECRET}",
        f"key -----BEGIN PRIVATE KEY-----\\n{SECRET}",
        f'"hf_token": "{SECRET}"',
        f"HUGGING_FACE_HUB_TOKEN={SECRET}",
        f"password={SECRET}",
        f"x?password%3D{SECRET}%26y=1",
        f"Authorization: Token {SECRET}",
        f"{{'Authorization': 'Token {SECRET}', 'port': 1}}",
        f"Set-Cookie: session={SECRET}; Path=/",
        f'{{\\"api_key\\": \\"{SECRET}\\", \\"port\\": 8000}}',
        f"GET https://account/x?se=2027&sig={SECRET}",
        f"GET https://host/x?key={SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        "using hf_" + "aB3" * 12,
        "key sk-" + "proj-aB3" * 6,
        "ghp_" + "aB3" * 12,
        "jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    ],
)
def test_no_secret_of_a_text_comes_out(line: str) -> None:
    shown = redact.text(line)
    assert redact.HIDDEN in shown
    for secret in (SECRET, "aB3" * 12, "eyJhbGci", "proj-aB3"):
        assert secret not in shown


@pytest.mark.parametrize(
    "line",
    [
        "Loading safetensors checkpoint shards: 50% Completed | 1/2",
        "non-default args: {'api_key': None, 'max_num_batched_tokens': 2048, 'tokenizer': 'm'}",
        "tokens: 5, token: 5, max_tokens=16, eos_token_id=2",
        "hf_transfer is not installed; hf_overrides={}",
        "http://127.0.0.1:8000/v1/models",
        "cache key: 3f2a, task_id=7",
        "warm-up pass: 12.5 s, pass = 3, bypass: all, compass: north, PWD=/srv/models pwd: /srv",
        "ssh -p 2222 host; curl -k https://host/; docker run -u 1000:1000 -p 8000:8000 image; mysql -p",
        "-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----",
        "'compilation_config': {'pass_config': {'fuse': False}}, pass 2: author: me, code=1",
        "",
    ],
)
def test_harmless_text_stays_as_it_is(line: str) -> None:
    assert redact.text(line) == line


@pytest.mark.parametrize(
    "advice",
    [
        "set FIRSTLIGHT_API_KEY, or pass the key with the --api-key option",
        "give the right one with --api-key or FIRSTLIGHT_API_KEY",
        "the option --api-key is missing; use --api-key, please. --hf-token must be set",
    ],
)
def test_prose_about_an_option_stays_as_it_is(advice: str) -> None:
    assert redact.text(advice) == advice


@pytest.mark.parametrize(
    "line",
    [
        f"--api-key or --hf-token {SECRET}",
        f"--api-key or={SECRET}",
        f"--api-key orange-{SECRET}",
        f"--api-key='or {SECRET}'",
    ],
)
def test_prose_gives_no_cover_to_a_secret(line: str) -> None:
    assert SECRET not in redact.text(line)


@pytest.mark.parametrize(
    ("argv", "variables"),
    [
        (["server", "--api-key", SECRET], []),
        (["server", f"--api-key={SECRET}"], []),
        (["server", "--api-key", "first-of-two", SECRET], []),
        (["server", "--api-key", f"first-of-two,{SECRET}"], []),
        (["env", f"HF_TOKEN={SECRET}", "server"], []),
        (["docker", "run", f"--env=DB_PASSWORD={SECRET}", "image"], []),
        (["bash", "-c", f"server --api-key '{SECRET}' --port 1"], []),
        (["bash", "-c", f"HF_TOKEN={SECRET} server"], []),
        (["server"], [("MY_SECRET", SECRET)]),
        (["server"], [("SIGNING_KEY", f"-----BEGIN-----\n{SECRET}\n-----END-----")]),
    ],
)
def test_a_secret_that_is_known_is_replaced_under_any_name(argv: list[str], variables: list[tuple[str, str]]) -> None:
    redact.remember(redact.secrets_of(argv, variables))
    assert redact.text(f"the user sent {SECRET}!") == "the user sent ***!"
    assert redact.command(["server", "-k", SECRET, f"-k{SECRET}", f"{SECRET}.py", f"--x={SECRET}"]) == (
        "server",
        "-k",
        "***",
        "-k***",
        "***.py",
        "--x=***",
    )


def test_what_is_harmless_is_not_remembered() -> None:
    argv = ["vllm", "serve", "--api-key", "short", "Qwen/Qwen3-8B", "--port", "80000001", "--hf-token", "None"]
    variables = [("HOME", "/home/somebody"), ("SSH_AUTH_SOCK", "/run/user/1000/agent"), ("HF_TOKEN", "")]
    redact.remember(redact.secrets_of(argv, variables))
    line = "short Qwen/Qwen3-8B at 80000001 in /home/somebody by /run/user/1000/agent"
    assert redact.text(line) == line


def test_what_is_known_grows_and_the_longest_goes_first() -> None:
    redact.remember(["abcdefgh"])
    redact.remember(["abcdefgh-ijkl", ""])
    assert redact.text("abcdefgh abcdefgh-ijkl") == "*** ***"


def test_a_secret_that_is_not_unicode_is_known_as_it_is_read() -> None:
    redact.remember(["caf\udce9-secret"])
    assert redact.text("caf\udce9-secret caf�-secret") == "*** ***"


def test_text_and_commands_come_out_fit_to_be_written() -> None:
    assert redact.text("caf\udce9") == "caf�"
    assert redact.command(["caf\udce9", "--x=\ud800"]) == ("caf�", "--x=�")


def test_redacting_twice_changes_nothing_more() -> None:
    once = redact.text(f"api_key='{SECRET}' https://a:{SECRET}@b token={SECRET} --hf-token {SECRET}")
    assert redact.text(once) == once


def test_an_environment_shows_values_of_known_harmless_names_only() -> None:
    shown = redact.environ(
        {
            "NCCL_DEBUG": "INFO",
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_API_KEY": SECRET,
            "HF_TOKEN": SECRET,
            "HF_HOME": "/cache",
            "https_proxy": f"http://me:{SECRET}@proxy:3128",
            "SOMETHING_ELSE": SECRET,
            "HF_COOKIE": SECRET,
            "SGLANG_ADMIN_PASS": SECRET,
            "SLURM_JWT": SECRET,
            "VLLM_AUTHTOKENS": SECRET,
            "TORCH_ACCESSKEY": SECRET,
            "VLLM_MAX_TOKENS": "2048",
            "TOKENIZERS_PARALLELISM": "maybe",
        }
    )
    assert shown["VLLM_MAX_TOKENS"] == "2048"
    assert shown["TOKENIZERS_PARALLELISM"] == "maybe"
    assert shown["NCCL_DEBUG"] == "INFO"
    assert shown["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert shown["HF_HOME"] == "/cache"
    assert shown["https_proxy"] == "http://***@proxy:3128"
    assert SECRET not in str(shown)
    assert set(shown) >= {"SOMETHING_ELSE", "HF_TOKEN", "VLLM_API_KEY"}


@pytest.mark.parametrize("unit", ["a", "token", "secret_", "https://", "--a", "'", "api_key=[", "eyJ", "bearer "])
def test_hostile_text_is_read_to_its_end(unit: str) -> None:
    """Quadratic patterns would need hours here and be ended by the suite's timeout."""
    shown = redact.text(unit * (400_000 // len(unit)) + f" password={SECRET}")
    assert SECRET not in shown


def test_the_shells_working_directory_is_no_password() -> None:
    variables = (("PWD", "/srv/models/llama"), ("OLDPWD", "/srv/earlier"), ("DB_PWD", "hunter2hunter2"))

    assert redact.secrets_of((), variables) == {"hunter2hunter2"}
    assert redact.command(("serve", "--pwd", "hunter2hunter2")) == ("serve", "--pwd", "***")


@pytest.mark.parametrize(
    "argv",
    [
        ("vllm", "serve", "m", "-p", "8000", "-k", "3", "-u", "1000:1000"),
        ("curl", "-k", "https://host/v1/models", "-u", "bob"),
        ("mysql", "-p", "database"),
    ],
)
def test_short_options_of_other_programs_are_no_passwords(argv: tuple[str, ...]) -> None:
    assert redact.command(argv) == argv


def test_the_name_beside_a_password_stays() -> None:
    assert redact.command(["curl", "-u", "bob:secret12", "http://h/"]) == ("curl", "-u", "bob:***", "http://h/")


def test_a_private_key_over_several_lines_is_hidden() -> None:
    keys = redact.PrivateKeys()
    lines = [
        "(Worker pid=7) -----BEGIN EC PRIVATE KEY-----",
        "(Worker pid=7) MHcCAQEEIB8yVZ3mQ0kTq1",
        "oUQDQgAE==",
        "(Worker pid=7) -----END EC PRIVATE KEY-----",
        "Loading weights",
    ]
    shown = [keys.hide(line) for line in lines]
    assert shown == [lines[0], "(Worker pid=7) ***", "***", *lines[3:]]


def test_a_key_that_never_ends_does_not_hide_the_log_for_ever() -> None:
    keys = redact.PrivateKeys()
    keys.hide("-----BEGIN PRIVATE KEY-----")
    shown = [keys.hide("weights loaded") for _ in range(redact.KEY_LINES_MAX + 1)]
    assert (shown[0], shown[-1]) == ("weights ***", "weights loaded")


def test_a_variable_in_a_line_for_a_shell_is_kept_secret() -> None:
    line = "A=1 DB_PASS=hunter22hunter exec python3 srv.py"
    assert redact.text(line) == "A=1 DB_PASS=*** exec python3 srv.py"
    assert redact.command(("bash", "-c", line))[2] == "A=1 DB_PASS=*** exec python3 srv.py"
    assert redact.secrets_of(("bash", "-c", line)) == {"hunter22hunter"}
    assert redact.text("NCCL_DEBUG=INFO PATH=/usr/bin:/bin") == "NCCL_DEBUG=INFO PATH=/usr/bin:/bin"
