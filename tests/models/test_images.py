"""Images on the way to a model: which files are taken, what identifies one, where they are kept, and the wire."""

import base64
import hashlib
import json
import os
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.errors import InputError, ProviderError, WaitingForReplies
from kforge.models import IMAGES_REFUSED, Exchange, ExchangedModel, Image, Request, open_model, read_images
from kforge.models.images import MOST_BYTES
from kforge.models.providers import Patience, ProviderModel
from kforge.run_options import RunOptions, options_of

HASTY = Patience(attempts=2, timeout=5.0, first_wait=0.01, longest_wait=0.05)
JPEG, WEBP = b"\xff\xd8\xff\xe0 a picture", b"RIFF\x10\x00\x00\x00WEBPVP8 a picture"


def png(shade: int = 0) -> bytes:
    """A whole PNG file of one pixel."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(bytes([0, shade])))]
    chunks = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in (*parts, (b"IEND", b""))
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.fixture
def look(ask):
    """Makes a request whose last message has these images."""

    def make(*images: Image, **facts) -> Request:
        request = ask(**facts)
        *before, last = request.messages
        return request.model_copy(update={"messages": (*before, last.model_copy(update={"images": images}))})

    return make


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "media_type", "suffix"),
    [(png(), "image/png", "png"), (JPEG, "image/jpeg", "jpg"), (WEBP, "image/webp", "webp")],
    ids=["png", "jpeg", "webp"],
)
def test_the_kind_is_told_by_the_content_and_not_by_the_name(tmp_path, content, media_type, suffix):
    (tmp_path / "picture.txt").write_bytes(content)
    (image,) = read_images([tmp_path / "picture.txt"])
    assert (image.media_type, image.content, image.measured) == (media_type, content, False)
    assert image.name == f"{hashlib.sha256(content).hexdigest()}.{suffix}"


def refusals(folder):
    """What is refused, with the reason."""
    (folder / "words.png").write_text("no picture")
    (folder / "empty.png").write_bytes(b"")
    (folder / "movie.webp").write_bytes(b"RIFF\x10\x00\x00\x00AVI a movie")
    os.mkfifo(folder / "pipe.png")
    with (folder / "large.png").open("wb") as large:
        large.write(png())
        large.truncate(MOST_BYTES + 1)
    yield from ((name, "it is not a PNG, JPEG or WebP image") for name in ("words.png", "empty.png", "movie.webp"))
    yield "pipe.png", "it is not a file"
    yield "large.png", "it is larger than 5 MiB"
    yield ".", "Is a directory"
    yield "gone.png", "No such file or directory"


def test_anything_else_is_refused_with_one_line(tmp_path):
    for name, reason in refusals(tmp_path):
        with pytest.raises(InputError) as refused:
            read_images([tmp_path / name])
        assert str(refused.value).endswith(f"{tmp_path / name}: {reason}")
        assert "\n" not in str(refused.value)


def test_at_most_eight_are_taken_and_the_same_one_counts_once(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(9)]
    for number, path in enumerate(paths):
        path.write_bytes(png(number // 2))
    assert len(read_images(paths[:8])) == 4
    with pytest.raises(InputError, match="at most 8 images can be given, not 9"):
        read_images(paths)


# --- an option of a run -------------------------------------------------------------------------------------

CHOSEN = {"platform": "null", "model": "exchange", "analyst": "exchange"}


@given(st.lists(st.binary(max_size=5), max_size=8, unique=True))
def test_a_run_names_its_images_by_their_digests(tails):
    images = tuple(Image.of(JPEG + tail) for tail in tails)
    written = json.loads(json.dumps(RunOptions(**CHOSEN, images=images).model_dump()))
    assert written["images"] == " ".join(image.name for image in images)
    read = options_of(written, "a run").images
    assert [(image.name, image.content) for image in read] == [(image.name, b"") for image in images]


@given(st.text(min_size=1).filter(str.strip))
def test_any_other_text_as_images_of_a_run_is_refused(text):
    with pytest.raises(InputError, match="option images"):
        options_of({**CHOSEN, "images": text}, "a run")


# --- identity -----------------------------------------------------------------------------------------------


def test_an_image_of_the_user_is_part_of_the_identity_and_a_drawn_profile_is_not(look):
    given, other = Image.of(png(1)), Image.of(png(2))
    drawn, redrawn = (Image.of(png(shade), measured=True) for shade in (3, 4))
    assert look(drawn).identity == look(redrawn).identity == look().identity
    assert look(drawn, given).identity == look(given).identity
    assert len({each.identity for each in (look(), look(given), look(other), look(given, other))}) == 4


def test_a_request_on_disk_names_its_images_and_keeps_its_identity(look, tmp_path):
    request = look(Image.of(png(1), measured=True), Image.of(JPEG))
    Exchange(tmp_path).write_request(request)
    written = tmp_path / "001-generation.request.json"
    assert base64.b64encode(png(1)).decode() not in written.read_text()
    assert Request.from_json(written.read_bytes()).identity == request.identity
    first, second = (tmp_path / f"001-generation.image-{name}" for name in ("1.png", "2.jpg"))
    assert (first.read_bytes(), second.read_bytes()) == (png(1), JPEG)


def test_a_person_who_answers_sees_the_images_beside_the_prompt(look, tmp_path):
    request = look(Image.of(png(1)), Image.of(WEBP))
    with pytest.raises(WaitingForReplies):
        open_model("exchange", exchange=tmp_path, keys={}).complete(request)
    prompt = (tmp_path / "001-generation.prompt.md").read_text()
    for name in ("001-generation.image-1.png", "001-generation.image-2.webp"):
        assert f"![{name}]({name})" in prompt
        assert (tmp_path / name).is_file()


# --- the wire -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(server, tmp_path):
    return ExchangedModel(ProviderModel.open(f"openai:tiny@{server.url}", {}, HASTY), Exchange(tmp_path))


def test_the_images_are_in_the_body_of_the_request(model, server, look):
    server.script = [server.say("I see")]
    reply = model.complete(look(Image.of(png(7)), Image.of(JPEG), model=model.name))
    assert (reply.text, reply.finish) == ("I see", "stop")
    system, user = server.bodies[0]["messages"]
    assert system["content"] == "be good"
    text, first, second = user["content"]
    assert text == {"type": "text", "text": "how? 1"}
    for part, kind, content in ((first, "image/png", png(7)), (second, "image/jpeg", JPEG)):
        assert part["type"] == "image_url"
        assert part["image_url"]["url"] == f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.mark.parametrize("provider", ["openai-responses", "anthropic", "google"])
def test_every_provider_of_the_extra_sends_the_image(server, look, provider):
    server.script = [server.send(401, "{}")]
    with pytest.raises(InputError):
        ProviderModel.open(f"{provider}:tiny@{server.url}", {}, HASTY).complete(look(Image.of(png(7))))
    sent = json.dumps(server.bodies[0]).replace("-", "+").replace("_", "/")  # either alphabet of base64
    assert base64.b64encode(png(7)).decode() in sent


REFUSALS = {
    "the provider's own": (400, "Invalid content type. image_url is only supported by certain models."),
    "a strict parser": (422, "unknown variant `image_url`, expected `text`"),
    "too large": (413, "request entity too large"),
    "a router": (404, "No endpoints found that support image input"),
    "llama.cpp": (500, "image input is not supported - hint: you may need to provide the mmproj"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_of_images_is_a_reply_that_says_so_and_is_kept(model, server, look, name):
    status, words = REFUSALS[name]
    server.script = [server.send(status, json.dumps({"error": {"message": words}}))]
    request = look(Image.of(png()), model=model.name)
    reply = model.complete(request)
    assert reply.finish == IMAGES_REFUSED
    assert words[:30] in reply.text
    assert model.complete(request) == reply
    assert len(server.bodies) == 1, "a run that is resumed does not ask again"


@pytest.mark.parametrize(
    ("status", "words", "calls"), [(401, "image", 1), (404, "no such model", 1), (500, "oops", 2), (503, "image", 2)]
)
def test_another_failure_is_no_refusal_of_images(model, server, look, status, words, calls):
    server.script = [server.send(status, json.dumps({"error": {"message": words}}))]
    with pytest.raises((InputError, ProviderError)):
        model.complete(look(Image.of(png()), model=model.name))
    assert len(server.bodies) == calls


def test_words_about_images_mean_nothing_where_there_were_none(model, server, ask):
    server.script = [server.send(400, '{"error": {"message": "image input is not supported"}}')]
    with pytest.raises(ProviderError):
        model.complete(ask(model=model.name))
