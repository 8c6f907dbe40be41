// Canonical JSON of plain values, as fedincentive/entry.py defines it: what is signed, hashed and kept in ledgers.
#pragma once
#include <pybind11/pybind11.h>

namespace fedincentive {

// The bytes of json.dumps(value, sort_keys=True), without spaces unless `spaced`; None where the value is made of
// anything but dicts with text keys, lists, tuples, texts and 64-bit ints: then json has to write or refuse it.
pybind11::object canonical(const pybind11::handle& value, bool spaced);

// The values of a dict in that form, in its own order, each between two parts, which are bytes; None as above.
pybind11::object interleaved(const pybind11::tuple& parts, const pybind11::dict& values);

// A copy made of dicts with non-empty keys, lists, printable texts and 64-bit ints, nested at most `depth` deep; None
// where the value is anything else: then Python looks for what has to be refused.
pybind11::object plain_copy(const pybind11::handle& value, int depth);

}  // namespace fedincentive
