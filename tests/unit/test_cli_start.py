"""The command is interrupted before it is ready."""

import sys

from rekord.cli import start


def test_an_interrupt_while_the_command_loads_is_one_word_and_130(monkeypatch, capsys):
    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == "rekord.cli.main":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name == "rekord.cli.main"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert start.run() == 130
    assert capsys.readouterr().err == "interrupted\n"
