"""gpubuf's words: help, what is nearest to a mistake, abbreviations, and secrets among the arguments. No daemon is asked."""
import pytest

from gpubuf_cli import DONE, USAGE, Cli

cli = Cli("http://127.0.0.1:1")
SECRET = "gpb_0123456789abcdef"


def test_help_is_what_the_option_prints():
    assert cli("help").expect().out == cli("--help").expect().out
    assert cli("help", "put").expect().out == cli("put", "--help").expect().out
    assert "gpubuf help [COMMAND]" in cli("help", "help").expect().out
    assert not cli("help", "put", "get").expect(USAGE).out


@pytest.mark.parametrize("args,said", [
    (("gte", "x"), "is get meant?"), (("help", "stat"), "is stats meant?"), (("lss",), "is ls meant?"),
    (("ls", "--sesion", "x"), "is --session meant?"), (("put", "x", "--shap=3"), None), (("put", "x", "--dtpye=int8"), "is --dtype meant?"),
])
def test_what_is_nearest_is_named(args, said):
    if said is None:
        cli(*args).expect(1)  # --shape, of a file that is not there
    else:
        assert said in cli(*args).expect(USAGE).err


@pytest.mark.parametrize("args,said", [
    (("nothing-at-all",), 'there is no command "nothing-at-all"; "gpubuf'), (("ls", "--quux"), 'there is no option "--quux"; "gpubuf'),
    (("ls", "-Z"), 'there is no option "-Z"'), (("ls", "--session"), "--session needs a value: SESSION"),
    (("ls", "-s"), "--session needs a value: SESSION"), (("ls", "--json=1"), "--json takes no value"),
    (("ls", "--so"), "--source-token-file, --socket"), (("ls", "\x1b[2J"), None),
])
def test_what_is_near_to_nothing_is_not_guessed_at(args, said):
    err = cli(*args).expect(USAGE if said else 3).err
    assert "meant?" not in err and (said is None or said in err), err


def test_a_command_that_commands_the_terminal():
    assert "\x1b" not in cli("\x1b[2J").expect(USAGE).err


@pytest.mark.parametrize("args", [
    ("ls", "--tokn=" + SECRET), ("ls", "--token-fil=" + SECRET), ("ls", "--token-fil", SECRET), ("ls", "--json=" + SECRET),
    ("ls", "--toke=" + SECRET), ("ls", "--token=" + SECRET), ("ls", "--token-file", SECRET), ("ls", "--token-file=" + SECRET),
    ("call", "GET", "/v1", "--head", "Authorization: Bearer " + SECRET),
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
