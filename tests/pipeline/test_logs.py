"""What an audit expects of a log before it reads any record."""

from barnabas.pipeline.layout import Holding
from barnabas.pipeline.logs import Archive
from barnabas.pipeline.manifest import Archive as Directory
from barnabas.pipeline.manifest import Batch, Range


def archive(tmp_path):
    """Two batches of a partition, one of another topic; its files do not matter."""
    place = Directory(tmp_path)
    place.make()
    parts = [("letters", 0, 5, 9), ("letters", 0, 12, 14), ("bills", 1, 0, 0)]
    for number, (topic, partition, first, last) in enumerate(parts):
        found = Range(topic, partition, first, last, last - first + 1, 0, 0, 1, 1)
        place.write(place.manifest / f"{number}.json", Batch(number, "a", {}, (found,)).to_json())
    return str(tmp_path)


def test_an_archive_holds_what_its_manifest_says_though_files_are_gone(tmp_path):
    letters, bills = Holding("archive", "letters", 0, 5, 15), Holding("archive", "bills", 1, 0, 1)
    assert Archive(archive(tmp_path)).holdings() == [letters, bills]
    assert Archive(archive(tmp_path), ["letters"]).holdings() == [letters]


def test_an_archive_whose_records_are_numbered_holds_as_many_as_its_manifest(tmp_path):
    assert Archive(archive(tmp_path), ["letters"], by_order=True).holdings() == [Holding("archive", "letters", 0, 0, 8)]
