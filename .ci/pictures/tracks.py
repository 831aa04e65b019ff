"""Reads traces for Perfetto by Perfetto's own schema: all fields are known, every event is on a track that was described, slices
nest, times never go back, every flow begins and ends, and the counters and waits are those that `replay` tells of in words."""

import json
import pathlib
import re
import subprocess
import sys
from collections import Counter

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

cmap, folder = sys.argv[1:]
Event = schema.TrackEvent


def messages(message):
    """The message and all that are within it."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner)


def replay(file, *options):
    command = [cmap, "replay", file.with_suffix(".trace"), *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check(file):
    """What is in a file."""
    content = file.read_bytes()
    trace = schema.Trace.FromString(content)
    # Fields may stand in any order.
    assert trace.ByteSize() == len(content), "the schema would write it otherwise"
    assert not any(len(UnknownFieldSet(message)) for message in messages(trace)), "there are unknown fields"
    assert all(packet.trusted_packet_sequence_id for packet in trace.packet), "a packet is of no sequence"

    tracks = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, f"track {track.uuid} is described twice"
            assert not track.parent_uuid or track.parent_uuid in tracks, f"track {track.uuid} has an unknown parent"
            tracks[track.uuid] = track

    kinds = Counter()
    latest, stacks, counts, finished = {}, {}, {}, []
    begun, ended = Counter(), Counter()
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        track = event.track_uuid
        assert track in tracks, f"track {track} was never described"
        assert packet.timestamp >= latest.get(track, 0), f"time goes back on track {track}"
        latest[track] = packet.timestamp
        kinds[Event.Type.Name(event.type)] += 1
        stack = stacks.setdefault(track, [])
        if event.type == Event.TYPE_SLICE_BEGIN:
            stack.append((packet.timestamp, event))
        elif event.type == Event.TYPE_SLICE_END:
            assert stack, f"a slice ends on track {track} that did not begin"
            begin, opened = stack.pop()
            finished.append((len(stack), opened, packet.timestamp - begin))
        elif event.type == Event.TYPE_COUNTER:
            assert tracks[track].HasField("counter"), f"track {track} is no counter"
            counts[track] = event.counter_value
        for flow in event.flow_ids:
            begun[flow] += 1
        for flow in event.terminating_flow_ids:
            assert flow in begun, f"flow {flow} ends before it begins"
            ended[flow] += 1
    assert not any(stacks.values()), "a slice has no end"
    assert begun == ended and set(begun.values()) == {1}, "a flow does not begin or end once"

    # What is counted at the end is what `replay` says of the state.
    at_the_end = Counter()
    for track, value in counts.items():
        at_the_end[tracks[track].name] += value
    said = re.search(r"at the end: (\d+) in use, (\d+) available, (\d+) pending, (\d+) waiting", replay(file))
    expected = dict(zip(["in use", "available", "pending", "waiting"], map(int, said.groups())))
    assert at_the_end == expected, f"{at_the_end} at the end, {expected} expected"

    # Every wait is a slice of its length, filled by its intervals.
    told = json.loads(replay(file, "--explain", "slowest:1000000", "--json"))
    waits = [(slice, length) for _, slice, length in finished if slice.categories == ["wait"]]
    assert sorted(length for _, length in waits) == sorted(wait["nanoseconds"] for wait in told), "waits differ in length"
    limits = sum(length for depth, slice, length in finished if slice.categories == ["limit"] and depth == 1)
    assert limits == sum(wait["nanoseconds"] for wait in told), "intervals do not fill the waits"

    return Counter(
        tracks=len(tracks), slices=kinds["TYPE_SLICE_BEGIN"], instants=kinds["TYPE_INSTANT"], counts=kinds["TYPE_COUNTER"], waits=len(waits),
        flows_of_waits=sum(not flow >> 63 for flow in begun), flows_of_clears=sum(flow >> 63 for flow in begun),
    )


files = sorted(pathlib.Path(folder).glob("*.pftrace"))
found = sum(map(check, files), Counter())
assert all(found[kind] for kind in ["slices", "instants", "counts", "waits", "flows_of_waits", "flows_of_clears"]), found
print(f"Perfetto's schema: {len(files)} files, {', '.join(f'{number} {kind}' for kind, number in found.items())}")
