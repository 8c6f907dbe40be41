// Arrays and tensors of one dtype and shape whose values lie one after the other: their addresses, without a view of
// each being made in Python, which takes longer than adding up a small tensor. Whatever is not so plain is refused here
// without words; updates.py then looks at it closely and says what is wrong, or makes do.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace fedincentive {

// What the standard header of DLPack 1 calls DLTensor and DLPackExchangeAPI.
struct LentTensor {
  void* data;
  int32_t device_type, device_id, dims;
  uint8_t kind, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
};
struct Lender {
  uint32_t major, minor;
  void *previous, *allocate, *managed_from_object, *object_from_managed;
  int (*lend)(void* object, LentTensor* tensor);
  void* stream;
};

struct PlainArray {
  const void* pointer;
  Dtype dtype;
  bool tensor;
  int dims;
  const int64_t* shape;  // the object's own

  bool like(const PlainArray& other) const {
    return dtype == other.dtype && tensor == other.tensor && dims == other.dims &&
           std::equal(shape, shape + dims, other.shape);
  }
};

inline bool one_after_the_other(int dims, const int64_t* shape, const int64_t* strides, int64_t item) {
  for (int d = 0; d < dims; ++d)
    if (shape[d] == 0) return true;
  for (int d = dims - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != item) return false;
    item *= shape[d];
  }
  return true;
}

inline std::optional<PlainArray> plain_array(pybind11::handle object) {
  const auto* array = pybind11::detail::array_proxy(object.ptr());
  const auto type = pybind11::reinterpret_borrow<pybind11::dtype>(array->descr);
  const int number = type.num();  // NumPy's: 11 float, 12 double, 23 half
  if ((number != 11 && number != 12 && number != 23) || type.byteorder() != '=') return std::nullopt;
  const Dtype dtype = number == 11 ? Dtype::float32 : number == 12 ? Dtype::float64 : Dtype::float16;
  static_assert(sizeof(*array->dimensions) == sizeof(int64_t), "sizes of arrays are 64 bits");
  const auto* shape = reinterpret_cast<const int64_t*>(array->dimensions);
  const auto* strides = reinterpret_cast<const int64_t*>(array->strides);
  if (!one_after_the_other(array->nd, shape, strides, item_size(dtype))) return std::nullopt;
  return PlainArray{array->data, dtype, false, array->nd, shape};
}

inline std::optional<PlainArray> plain_tensor(pybind11::handle object, const Lender& lender,
                                              pybind11::handle is_negated) {
  LentTensor tensor{};
  if (lender.lend(object.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  constexpr int cpu = 1, real = 2, brain = 4;  // of DLPack
  const bool known = (tensor.kind == real && (tensor.bits == 16 || tensor.bits == 32 || tensor.bits == 64)) ||
                     (tensor.kind == brain && tensor.bits == 16);
  if (tensor.device_type != cpu || !known || tensor.lanes != 1) return std::nullopt;
  const Dtype dtype = tensor.kind == brain ? Dtype::bfloat16
                      : tensor.bits == 16  ? Dtype::float16
                      : tensor.bits == 32  ? Dtype::float32
                                           : Dtype::float64;
  if (tensor.strides && !one_after_the_other(tensor.dims, tensor.shape, tensor.strides, 1)) return std::nullopt;
  PyObject* const negated = PyObject_CallOneArg(is_negated.ptr(), object.ptr());
  if (!negated) throw pybind11::error_already_set();
  Py_DECREF(negated);
  if (negated != Py_False) return std::nullopt;
  return PlainArray{static_cast<char*>(tensor.data) + tensor.offset, dtype, true, tensor.dims, tensor.shape};
}

// What is taken for an array or a tensor. `tensor_types` are those whose values are what their memory holds; `lender`
// is torch's exchange of DLPack, or None where there is none.
class PlainReader {
 public:
  PlainReader(const pybind11::tuple& tensor_types, const pybind11::object& lender)
      : array_type_(pybind11::detail::npy_api::get().PyArray_Type_) {
    if (lender.is_none()) return;
    const auto* lends = static_cast<const Lender*>(PyCapsule_GetPointer(lender.ptr(), "dlpack_exchange_api"));
    if (!lends) throw pybind11::error_already_set();
    if (lends->major != 1 || !lends->lend) return;
    lends_ = lends;
    for (const pybind11::handle type : tensor_types) tensor_types_.push_back(type.ptr());
    if (!tensor_types_.empty()) is_negated_ = tensor_types[0].attr("is_neg");  // looked up once, not for every tensor
  }
  std::optional<PlainArray> read(pybind11::handle value) const {
    const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
    if (type == reinterpret_cast<const PyObject*>(array_type_)) return plain_array(value);
    if (std::find(tensor_types_.begin(), tensor_types_.end(), type) == tensor_types_.end()) return std::nullopt;
    return plain_tensor(value, *lends_, is_negated_);
  }

 private:
  const PyTypeObject* array_type_;
  const Lender* lends_ = nullptr;
  pybind11::object is_negated_;
  std::vector<const PyObject*> tensor_types_;
};

// One entry of all clients, as far as it is plain.
class PlainEntry {
 public:
  void add(const std::optional<PlainArray>& found) {
    if (!first_) first_ = found;
    plain_ = plain_ && found && found->like(*first_);
    if (plain_) addresses_.append(reinterpret_cast<const char*>(&found->pointer), sizeof(void*));
  }
  bool plain() const { return plain_; }
  // (dtype, whether they are tensors, shape, addresses), or None
  pybind11::object told() const {
    namespace py = pybind11;
    if (!plain_ || !first_) return py::none();
    py::tuple shape(static_cast<size_t>(first_->dims));
    for (int d = 0; d < first_->dims; ++d) shape[static_cast<size_t>(d)] = py::int_(first_->shape[d]);
    return py::make_tuple(static_cast<int>(first_->dtype), first_->tensor, shape, py::bytes(addresses_));
  }

 private:
  bool plain_ = true;
  std::optional<PlainArray> first_;
  std::string addresses_;
};

// What is known of one entry's values.
inline pybind11::object plain(const pybind11::list& values, const pybind11::tuple& tensor_types,
                              const pybind11::object& lender) {
  const PlainReader reader(tensor_types, lender);
  PlainEntry entry;
  for (const pybind11::handle value : values) {
    entry.add(reader.read(value));
    if (!entry.plain()) break;
  }
  return entry.told();
}

inline bool same_text(PyObject* a, PyObject* b) {
  if (a == b) return true;
  return PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b) && PyUnicode_Compare(a, b) == 0;
}

// The same of all entries of clients' dicts: (values, what is known of them) of each name; None where a client has
// other names, or something else than a dict. Client after client, as each one's tensors lie near each other.
inline pybind11::object plain_dicts(const pybind11::list& clients, const pybind11::list& names,
                                    const pybind11::tuple& tensor_types, const pybind11::object& lender) {
  namespace py = pybind11;
  const PlainReader reader(tensor_types, lender);
  std::vector<PlainEntry> entries(names.size());
  std::vector<py::list> values;
  for (size_t e = 0; e < entries.size(); ++e) values.emplace_back(clients.size());
  for (size_t c = 0; c < clients.size(); ++c) {
    PyObject* const client = PyList_GET_ITEM(clients.ptr(), static_cast<Py_ssize_t>(c));
    const bool ordered = Py_TYPE(client) == &PyODict_Type;
    if ((!ordered && !PyDict_CheckExact(client)) || PyDict_Size(client) != static_cast<Py_ssize_t>(names.size()))
      return py::none();
    Py_ssize_t position = 0;
    for (size_t e = 0; e < entries.size(); ++e) {
      PyObject* const name = PyList_GET_ITEM(names.ptr(), static_cast<Py_ssize_t>(e));
      PyObject *key = nullptr, *value = nullptr;  // mostly names come in one order, which spares looking for them
      if (!PyDict_Next(client, &position, &key, &value) || !same_text(key, name))
        value = PyDict_GetItemWithError(client, name);
      if (!value && PyErr_Occurred()) throw py::error_already_set();
      if (!value) return py::none();
      Py_INCREF(value);
      PyList_SET_ITEM(values[e].ptr(), static_cast<Py_ssize_t>(c), value);
      if (entries[e].plain()) entries[e].add(reader.read(value));
    }
  }
  py::list told;
  for (size_t e = 0; e < entries.size(); ++e) told.append(py::make_tuple(values[e], entries[e].told()));
  return told;
}

}  // namespace fedincentive
