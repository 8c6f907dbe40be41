#include "canonical.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace fedincentive {
namespace {

constexpr int kDepth = 64;  // what is nested deeper is for json, which knows how deep Python's stack may be
constexpr int kBlock = 32;  // characters
constexpr char kHex[] = "0123456789abcdef";

template <typename C>
bool stands_for_itself(C c) {
  return (c >= ' ') & (c <= '~') & (c != '"') & (c != '\\');
}

// The first character that JSON escapes; whole blocks are looked at together, which compilers make vectors of.
template <typename C>
const C* first_escaped(const C* from, const C* end) {
  for (; end - from >= kBlock; from += kBlock) {
    C odd = 0;
    for (int i = 0; i < kBlock; ++i) odd |= static_cast<C>(!stands_for_itself(from[i]));
    if (odd != 0) break;
  }
  return std::find_if_not(from, end, stands_for_itself<C>);
}

// Nothing here runs Python code, so nothing can change a value while it is written.
class Writer {
 public:
  explicit Writer(bool spaced) : comma_(spaced ? ", " : ","), colon_(spaced ? ": " : ":") {}

  // Whether it could be written.
  bool write(PyObject* value, int depth) {
    if (PyUnicode_CheckExact(value)) return text(value), true;
    if (PyLong_CheckExact(value)) return number(value);
    if (depth == 0) return false;
    if (PyDict_CheckExact(value)) return mapping(value, depth - 1);
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) return sequence(value, depth - 1);
    return false;
  }

  std::string out;

 private:
  bool number(PyObject* value) {
    int overflow = 0;
    const long long found = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) return false;
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, found).ptr);
    return true;
  }

  void text(PyObject* value) {
    const Py_ssize_t length = PyUnicode_GET_LENGTH(value);
    switch (PyUnicode_KIND(value)) {
      case PyUnicode_1BYTE_KIND:
        return characters(PyUnicode_1BYTE_DATA(value), length);
      case PyUnicode_2BYTE_KIND:
        return characters(PyUnicode_2BYTE_DATA(value), length);
      default:
        return characters(PyUnicode_4BYTE_DATA(value), length);
    }
  }

  template <typename C>
  void characters(const C* from, Py_ssize_t length) {
    const C* const end = from + length;
    out += '"';
    while (true) {
      const C* const odd = first_escaped(from, end);
      as_it_is(from, odd);
      if (odd == end) break;
      const uint32_t c = *odd;
      if (c < 0x10000) {
        escaped(c);
      } else {  // a surrogate pair
        escaped(0xD800 + ((c - 0x10000) >> 10));
        escaped(0xDC00 + ((c - 0x10000) & 0x3FF));
      }
      from = odd + 1;
    }
    out += '"';
  }

  template <typename C>
  void as_it_is(const C* from, const C* to) {
    if constexpr (sizeof(C) == 1) {
      out.append(reinterpret_cast<const char*>(from), static_cast<size_t>(to - from));
    } else {
      for (; from != to; ++from) out += static_cast<char>(*from);
    }
  }

  void escaped(uint32_t c) {
    out += '\\';
    switch (c) {
      case '"':
      case '\\':
        out += static_cast<char>(c);
        return;
      case '\n':
        out += 'n';
        return;
      case '\r':
        out += 'r';
        return;
      case '\t':
        out += 't';
        return;
      case '\f':
        out += 'f';
        return;
      case '\b':
        out += 'b';
        return;
      default:
        out += 'u';
        for (int shift = 12; shift >= 0; shift -= 4) out += kHex[c >> shift & 15];
    }
  }

  bool mapping(PyObject* value, int depth) {
    std::vector<std::pair<PyObject*, PyObject*>> items;
    items.reserve(static_cast<size_t>(PyDict_GET_SIZE(value)));
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &item);) {
      if (!PyUnicode_CheckExact(key)) return false;
      items.emplace_back(key, item);
    }
    const auto before = [](const auto& a, const auto& b) { return PyUnicode_Compare(a.first, b.first) < 0; };
    if (!std::is_sorted(items.begin(), items.end(), before)) std::sort(items.begin(), items.end(), before);
    out += '{';
    const char* between = "";
    for (const auto& [name, what] : items) {
      out += between;
      between = comma_;
      text(name);
      out += colon_;
      if (!write(what, depth)) return false;
    }
    out += '}';
    return true;
  }

  bool sequence(PyObject* value, int depth) {
    out += '[';
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i) {
      if (i > 0) out += comma_;
      if (!write(PySequence_Fast_GET_ITEM(value, i), depth)) return false;
    }
    out += ']';
    return true;
  }

  const char *comma_, *colon_;
};

bool is_printable(PyObject* text) {
  if (!PyUnicode_CheckExact(text)) return false;
  if (PyUnicode_IS_COMPACT_ASCII(text)) {
    const unsigned char* from = PyUnicode_1BYTE_DATA(text);
    return std::all_of(from, from + PyUnicode_GET_LENGTH(text), [](unsigned char c) { return c >= ' ' && c <= '~'; });
  }
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); ++i)
    if (!Py_UNICODE_ISPRINTABLE(PyUnicode_READ_CHAR(text, i))) return false;
  return true;
}

py::object owned(PyObject* made) {
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(made);
}

// Null where the value is not plain.
py::object copied(PyObject* value, int depth) {
  if (PyUnicode_CheckExact(value)) {
    return is_printable(value) ? py::reinterpret_borrow<py::object>(value) : py::object();
  }
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long found = PyLong_AsLongLongAndOverflow(value, &overflow);
    const bool fits = overflow == 0 && found != INT64_MIN;  // amounts are from -(2**63 - 1) on
    return fits ? py::reinterpret_borrow<py::object>(value) : py::object();
  }
  if (depth == 0) return py::object();
  // What is inside is taken from the copy: making objects may run a finalizer, and that may change the value.
  if (PyDict_CheckExact(value)) {
    py::object made = owned(PyDict_Copy(value));
    PyObject *key = nullptr, *item = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(made.ptr(), &at, &key, &item);) {
      if (!is_printable(key) || PyUnicode_GET_LENGTH(key) == 0) return py::object();
      const py::object inside = copied(item, depth - 1);
      if (!inside) return inside;
      if (inside.ptr() != item && PyDict_SetItem(made.ptr(), key, inside.ptr()) != 0) throw py::error_already_set();
    }
    return made;
  }
  if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
    py::object made = owned(PySequence_List(value));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(made.ptr()); ++i) {
      py::object inside = copied(PyList_GET_ITEM(made.ptr(), i), depth - 1);
      if (!inside) return inside;
      if (PyList_SetItem(made.ptr(), i, inside.release().ptr()) != 0) throw py::error_already_set();
    }
    return made;
  }
  return py::object();
}

}  // namespace

py::object canonical(const py::handle& value, bool spaced) {
  Writer writer(spaced);
  if (!writer.write(value.ptr(), kDepth)) return py::none();
  return py::str(writer.out);
}

py::object interleaved(const py::tuple& parts, const py::dict& values) {
  if (parts.size() != values.size() + 1) throw std::invalid_argument("one value is needed between two parts");
  Writer writer(false);
  PyObject *key = nullptr, *value = nullptr;
  size_t i = 0;
  for (Py_ssize_t at = 0; PyDict_Next(values.ptr(), &at, &key, &value); ++i) {
    writer.out += static_cast<std::string_view>(py::reinterpret_borrow<py::bytes>(parts[i]));
    if (!writer.write(value, kDepth)) return py::none();
  }
  writer.out += static_cast<std::string_view>(py::reinterpret_borrow<py::bytes>(parts[i]));
  return py::bytes(writer.out);
}

py::object plain_copy(const py::handle& value, int depth) {
  py::object made = copied(value.ptr(), depth);
  return made ? made : py::none();
}

}  // namespace fedincentive
