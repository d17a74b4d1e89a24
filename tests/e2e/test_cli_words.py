"""gpubuf's words: help, what is nearest to a mistake, abbreviations, and secrets among the arguments. No daemon is
asked."""
import pytest

from gpubuf_cli import DONE, USAGE, Cli

cli = Cli("http://127.0.0.1:1")
SECRET = "gpb_0123456789abcdef"


def test_help_is_what_the_option_prints():
    assert cli("help").expect().out == cli("--help").expect().out
    assert cli("help", "put").expect().out == cli("put", "--help").expect().out
    assert "gpubuf help [COMMAND [WORD]]" in cli("help", "help").expect().out
    assert not cli("help", "put", "get").expect(USAGE).out


def test_help_on_a_word_of_a_command():
    added = cli("help", "pools", "add").expect().out
    assert added == cli("pools", "add", "--help").expect().out == cli("pools", "add", "x", "-h").expect().out
    assert "Usage: gpubuf pools add POOL... [OPTION...]" in added and "--reuse" in added and "--force" not in added
    assert ("--force" in cli("help", "pools", "rm").expect().out and '"gpubuf help pools WORD"'
            in cli("help", "pools").expect().out)
    assert "is grant meant?" in cli("help", "pools", "gramt").expect(USAGE).err
    assert "reset-peak" in cli("complete", "--", "help", "pools", "re").out.split()
    assert "--force" not in cli("complete", "--", "pools", "add", "p", "--").out.split()


@pytest.mark.parametrize("line,option", [
    ("put x.safetensors --max-bytes 1", "max-bytes"), ("put x.safetensors --dtype int8", "dtype"),
    ("put x.safetensors -c 2", "connections"), ("put x y --prefix p", "prefix"),
    ("get x* all.safetensors --slice 0", "slice"), ("get x x.safetensors --npy", "npy"), ("get x f --raw --npy", "npy"),
    ("cp a b --kind pinned", "kind"), ("cp a b --source-token-file f", "source-token-file"),
    ("cp ./f a --bytes 3", "bytes"), ("cp a ./f --from-offset 3", "from-offset"), ("cp http://h/x a --npy", "npy"),
    ("info --attributes", "attributes"), ("storage --rate 1M", "rate"), ("ls --parallel 3", "parallel")])
def test_an_option_without_effect_is_refused(line, option):
    assert f"--{option} has no effect here: " in cli(*line.split()).expect(USAGE).err


@pytest.mark.parametrize("line,said", [
    ("pools rm x --device 0", "pools rm takes no --device"), ("pools set x --exportable",
                                                              "pools set takes no --exportable"),
    ("sessions show x --labels a=b", "sessions show takes no --labels"),
    ("sessions rm x --exist-ok", "sessions rm takes no --exist-ok"), ("checkpoints verify x --only a",
                                                                      "checkpoints verify takes no --only"),
    ("events rm x --stream s", "events rm takes no --stream"), ("fleet nodes --force", "fleet nodes takes no --force"),
    ("sessions --max-bytes 1", "sessions alone takes no --max-bytes"),
    ("fleet --node a", "fleet alone takes no --node"), ("pools rm x --kind a", "pools rm takes no --kind")])
def test_an_option_of_another_word_is_refused(line, said):
    assert said in cli(*line.split()).expect(USAGE).err


@pytest.mark.parametrize("args,said", [
    (("gte", "x"), "is get meant?"), (("help", "stat"), "is stats meant?"), (("lss",), "is ls meant?"),
    (("ls", "--sesion", "x"), "is --session meant?"), (("put", "x", "--shap=3"), None),
    (("put", "x", "--dtpye=int8"), "is --dtype meant?"),
])
def test_what_is_nearest_is_named(args, said):
    if said is None:
        cli(*args).expect(1)  # --shape, of a file that is not there
    else:
        assert said in cli(*args).expect(USAGE).err


@pytest.mark.parametrize("args,said", [
    (("nothing-at-all",), 'there is no command "nothing-at-all"; "gpubuf'),
    (("ls", "--quux"), 'there is no option "--quux"; "gpubuf'), (("ls", "-Z"), 'there is no option "-Z"'),
    (("ls", "--session"), "--session needs a value: SESSION"), (("ls", "-s"), "--session needs a value: SESSION"),
    (("ls", "--json=1"), "--json takes no value"), (("ls", "--so"), "--source-token-file, --socket"),
    (("ls", "\x1b[2J"), None),
])
def test_what_is_near_to_nothing_is_not_guessed_at(args, said):
    err = cli(*args).expect(USAGE if said else 3).err
    assert "meant?" not in err and (said is None or said in err), err


def test_a_command_that_commands_the_terminal():
    assert "\x1b" not in cli("\x1b[2J").expect(USAGE).err


@pytest.mark.parametrize("args", [
    ("ls", "--tokn=" + SECRET), ("ls", "--token-fil=" + SECRET), ("ls", "--token-fil", SECRET),
    ("ls", "--json=" + SECRET), ("ls", "--toke=" + SECRET), ("ls", "--token=" + SECRET), ("ls", "--token-file", SECRET),
    ("ls", "--token-file=" + SECRET), ("call", "GET", "/v1", "--head", "Authorization: Bearer " + SECRET),
])
def test_no_mistake_prints_a_secret(args):
    said = cli(*args).expect(USAGE)
    assert said.err.startswith("gpubuf: ") and SECRET not in said.err + said.out


def test_options_of_secrets_have_no_short_form(tmp_path):
    """--pl for --plain-token would send the token in plain text."""
    said = cli("ls", "--pl").expect(USAGE)
    assert "is not all of --plain-token, which is taken only in full" in said.err
    (tmp_path / "t").write_text(SECRET)
    cli("ls", "--token-file", "t", "-v", cwd=tmp_path).expect(3)  # no daemon
    assert cli("help", "--quie").expect(DONE).out
