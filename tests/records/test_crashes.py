"""What sanitizers say about a program that died becomes part of its verdict."""

from kforge.records import NotSanitized, RuntimeFailure, Sanitization, SanitizedClean, SanitizerFinding

DIED = RuntimeFailure(fault="died", reason="the process was killed by SIGSEGV", log="Fatal Python error")


def test_a_finding_is_told_with_its_place_and_log() -> None:
    what = "heap-buffer-overflow in twice at kernel.cpp:4"
    failure = RuntimeFailure(fault="died", reason=what, log="kernel.cpp:4: y = x;")
    told = Sanitization(outcome=SanitizerFinding(sanitizer="ASan", failure=failure)).explained(DIED)
    assert told.reason == f"the process was killed by SIGSEGV; under ASan: {what}"
    assert (told.fault, told.log) == ("died", failure.log)


def test_silence_is_told_and_a_missing_sanitizer_changes_nothing() -> None:
    silent = Sanitization(outcome=SanitizedClean(sanitizer="ASan", cases=4)).explained(DIED)
    assert silent.reason == "the process was killed by SIGSEGV; ASan found nothing in 4 cases"
    assert silent.log == DIED.log
    assert Sanitization(outcome=NotSanitized(reason="no g++")).explained(DIED) == DIED
    same = SanitizerFinding(sanitizer="ASan", failure=DIED)
    assert Sanitization(outcome=same).explained(DIED) == DIED, "it only died again"


def test_memory_that_ran_out_is_no_crash() -> None:
    assert DIED.crashed
    assert not DIED.model_copy(update={"reason": "the process was killed by SIGKILL"}).crashed
    assert not DIED.model_copy(update={"fault": "timed_out"}).crashed
