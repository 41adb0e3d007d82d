"""Prints what TensorBoard itself finds in a folder of event files.

One line a value: "scalar TAG STEP VALUE" and "text TAG STEP TEXT", by tag and then by step. A record
that TensorBoard doesn't accept (frame, checksum, message) ends its reading, so lines go missing.
Usage: PYTHONPATH=.deps/tensorboard/lib .deps/tensorboard/python scripts/read_events.py FOLDER
"""
import sys

from tensorboard.backend.event_processing import event_accumulator


def main(folder: str) -> None:
    unlimited = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0}
    events = event_accumulator.EventAccumulator(folder, size_guidance=unlimited)
    events.Reload()
    print("version", events.file_version)
    tags = events.Tags()
    for tag in sorted(tags["scalars"]):
        for event in events.Scalars(tag):
            print("scalar", tag, event.step, event.value)
    for tag in sorted(tags["tensors"]):
        for event in events.Tensors(tag):
            kind = events.SummaryMetadata(tag).plugin_data.plugin_name
            text = event.tensor_proto.string_val[0].decode()
            print(kind, tag, event.step, text)


if __name__ == "__main__":
    main(sys.argv[1])
