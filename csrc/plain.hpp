// Arrays and tensors of one dtype and shape whose values lie one after the other: their addresses, without a view of
// each being made in Python, which takes longer than adding up a small tensor. Whatever is not so plain is refused here
// without words; updates.py then looks at it closely and says what is wrong, or makes do.
#pragma once

#include <pybind11/numpy.h>

#include <algorithm>
#include <optional>
#include <string>

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

inline std::optional<PlainArray> plain_tensor(pybind11::handle object, const Lender& lender) {
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
  static PyObject* const is_negated = PyUnicode_InternFromString("is_neg");
  PyObject* const negated = PyObject_CallMethodNoArgs(object.ptr(), is_negated);
  if (!negated) throw pybind11::error_already_set();
  Py_DECREF(negated);
  if (negated != Py_False) return std::nullopt;
  return PlainArray{static_cast<char*>(tensor.data) + tensor.offset, dtype, true, tensor.dims, tensor.shape};
}

// (dtype, whether they are tensors, shape, addresses) of one entry of all clients, or None. `tensor_types` are those
// whose values are what their memory holds; `lender` is torch's exchange of DLPack, or None where there is none.
inline pybind11::object plain(const pybind11::list& values, const pybind11::tuple& tensor_types,
                              const pybind11::object& lender) {
  namespace py = pybind11;
  const Lender* lends = nullptr;
  if (!lender.is_none()) {
    lends = static_cast<const Lender*>(PyCapsule_GetPointer(lender.ptr(), "dlpack_exchange_api"));
    if (!lends) throw py::error_already_set();
    if (lends->major != 1 || !lends->lend) lends = nullptr;
  }
  const auto* array_type = py::detail::npy_api::get().PyArray_Type_;
  std::string addresses;
  addresses.reserve(values.size() * sizeof(void*));
  std::optional<PlainArray> first;
  for (const py::handle value : values) {
    const PyTypeObject* type = Py_TYPE(value.ptr());
    std::optional<PlainArray> found;
    if (type == array_type) {
      found = plain_array(value);
    } else if (lends && std::any_of(tensor_types.begin(), tensor_types.end(), [&](py::handle known) {
                 return known.ptr() == reinterpret_cast<const PyObject*>(type);
               })) {
      found = plain_tensor(value, *lends);
    }
    if (!found) return py::none();
    if (!first) first = found;
    if (!found->like(*first)) return py::none();
    addresses.append(reinterpret_cast<const char*>(&found->pointer), sizeof(void*));
  }
  if (!first) return py::none();
  py::tuple shape(static_cast<size_t>(first->dims));
  for (int d = 0; d < first->dims; ++d) shape[static_cast<size_t>(d)] = py::int_(first->shape[d]);
  return py::make_tuple(static_cast<int>(first->dtype), first->tensor, shape, py::bytes(addresses));
}

}  // namespace fedincentive
