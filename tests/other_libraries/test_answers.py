"""Names of other libraries: the files map each one to settings that exist, and messages say what the files say."""

import importlib

import pytest

import proximo
from proximo.config import BY_NAME, LEAVES, unknown
from proximo.convert import values
from proximo.other_libraries import answer, answer_flags, answer_name, libraries, load

ENTRIES = [entry for library in libraries() for entry in load(library).settings]


@pytest.mark.parametrize("library", libraries())
def test_every_entry_has_existing_settings_or_a_note(library):
    content = load(library)
    entries = list(content.settings)
    assert len(entries) >= 20
    for entry in entries:
        assert set(entry.ours) <= BY_NAME.keys(), entry
        assert entry.ours or entry.note, entry
        assert entry.convert in ("", "nested", *values.RULES), entry
    for fixed in (content.always, *(variant.get("always", {}) for variant in content.variants.values())):
        assert set(fixed) <= BY_NAME.keys()
    for variant in content.variants.values():
        assert all(name in content.by_name for name in variant.get("defaults", {}))


def test_every_name_is_answered_and_never_by_a_similar_name():
    for entry in ENTRIES:
        if entry.name in LEAVES:
            continue
        message = str(unknown(entry.name))
        assert "did you mean" not in message
        if entry.ours != ("id",):
            assert all(part in message for name in entry.ours for part in name.split(".")), message
            assert entry.note.replace("`", "") in message.replace("`", ""), message


def test_names_of_several_libraries_are_answered_with_each_meaning():
    environments = dict.fromkeys(("env", "env_name", "ENV_NAME", "gym-id"), "give the environment without a flag")
    for name, said in {"n-test-steps": "eval_episodes", "layer_type": "memory", "gpu": "JAX_PLATFORMS", **environments}.items():
        assert said in str(unknown(name))
    assert answer("value_loss_coef") == (
        "In pytorch-ppo, value_loss_coef is called vf_coef here: the same value, because both value losses have the factor ½. "
        "In rsl_rl, value_loss_coef is called vf_coef here: give twice the value, because its value loss has no factor ½."
    )
    assert answer("qqqq") is answer_name("qqqq") is None
    assert "did you mean" not in str(unknown("max_stepz"))


@pytest.mark.parametrize("library", libraries())
def test_public_names_of_other_libraries_say_what_to_use(library):
    for name in load(library).names:
        assert name not in proximo.__all__
        with pytest.raises(ImportError, match=f"^proximo has no {name}: .+\\.$"):
            getattr(proximo, name)


def test_importing_the_class_of_another_library_says_what_to_use():
    with pytest.raises(ImportError, match=r'^proximo has no RecurrentPPO: .*memory="lstm"'):
        exec("from proximo import RecurrentPPO")
    with pytest.raises(AttributeError, match=r"^module 'proximo' has no attribute 'Nonsense'$"):
        _ = proximo.Nonsense
    assert importlib.import_module("proximo.storage").__name__ == "proximo.storage"


def test_a_flag_is_answered_only_where_the_answer_holds():
    assert answer_flags(["n-episodes"], ["--episodes"], True) == " --n-episodes: use --episodes."
    nothing = answer_flags(["n-episodes"], ["--out"], True), answer_flags(["model"], [], False), answer_flags(["qqqq"], [], True)
    assert nothing == ("", "", "")
    assert answer_flags(["model"], [], True).startswith(" --model: give the run without a flag")
    assert "JAX_PLATFORMS" in answer_flags(["gpu"], [], False)
