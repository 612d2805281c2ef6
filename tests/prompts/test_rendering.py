import subprocess
import sys

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import InputError
from kforge.prompts import MEASURED, render
from kforge.prompts.rendering import _environment


def rendered(template: str, **facts: object):
    """Render a template text through the real environment."""
    from kforge.prompts.rendering import _MARKS, _SPAN, Rendered

    marked = _environment("structured").from_string(template).render(facts)
    return Rendered(text=marked.translate(_MARKS), fingerprint=_SPAN.sub(MEASURED, marked))


def test_a_missing_fact_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="reason"):
        render("analyze_again")


def test_none_is_never_printed():
    with pytest.raises(TypeError, match="None"):
        render("analyze_again", reason=None)


def test_an_unknown_template_set_is_one_clear_line():
    with pytest.raises(InputError, match=r"no template set 'baroque'; there is: structured") as caught:
        render("generate", template_set="baroque")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../prompts/structured", "", "."])
def test_a_template_set_is_a_name_and_no_path(name):
    with pytest.raises(InputError):
        render("generate", template_set=name)


@given(st.text(), st.text())
def test_text_holds_the_facts_and_fingerprint_only_what_was_not_measured(fact, measurement):
    template = "a {{ fact }} b {{ measurement | measured }} c"
    both = rendered(template, fact=fact, measurement=measurement)
    clean = [text.replace("\ue000", "").replace("\ue001", "") for text in (fact, measurement)]
    assert both.text == f"a {clean[0]} b {clean[1]} c"
    assert both.fingerprint == f"a {clean[0]} b {MEASURED} c"


def test_facts_cannot_forge_marks():
    forged = rendered("{{ fact }}|{{ m | measured }}", fact="\ue000hidden\ue001", m="\ue001shown\ue000")
    assert forged.text == "hidden|shown"
    assert forged.fingerprint == f"hidden|{MEASURED}"


def test_measured_spans_may_be_nested():
    nested = rendered("{% filter measured %}x {{ m | measured }} y{% endfilter %} z", m=1)
    assert nested.text == "x 1 y z"
    assert nested.fingerprint == f"{MEASURED} z"


def test_importing_prompts_does_not_import_jinja2():
    code = "import sys, kforge.prompts; sys.exit('jinja2' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
