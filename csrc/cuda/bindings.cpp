// Python sees addresses, sizes and numbers; arrays and tensors are taken apart in fedincentive/aggregation.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "reduce.hpp"

#ifndef FEDINCENTIVE_CUDA_ARCHS
#define FEDINCENTIVE_CUDA_ARCHS ""
#endif

namespace py = pybind11;
using namespace fedincentive;

namespace {

const int64_t* integers(const py::buffer_info& info) {
  if (info.itemsize != 8) throw std::invalid_argument("expected a buffer of 64-bit integers");
  return static_cast<const int64_t*>(info.ptr);
}

// addresses[segment * clients + client], sizes[segment], outputs[segment]
class Call {
 public:
  Call(const py::buffer& addresses, const py::buffer& sizes, const py::buffer& outputs, int64_t clients, int dtype,
       bool wide_output, int64_t trim, std::vector<double> weights, double divisor) {
    const py::buffer_info address_info = addresses.request(), size_info = sizes.request(), out_info = outputs.request();
    if (address_info.size != size_info.size * clients || out_info.size != size_info.size)
      throw std::invalid_argument("one address per segment and client, and one output per segment, are needed");
    if (clients < 1 || clients > INT32_MAX || trim < 0 || 2 * trim >= clients)
      throw std::invalid_argument("clients or trim is out of range");
    if (!weights.empty() && static_cast<int64_t>(weights.size()) != clients)
      throw std::invalid_argument("one weight per client is needed");
    if (dtype < 0 || dtype > 3) throw std::invalid_argument("unknown dtype");
    const int64_t *from = integers(address_info), *lengths = integers(size_info), *to = integers(out_info);
    for (int64_t i = 0; i < address_info.size; ++i) pointers_.push_back(reinterpret_cast<const void*>(from[i]));
    for (int64_t s = 0; s < size_info.size; ++s)
      request.segments.push_back({pointers_.data() + s * clients, nullptr, lengths[s], reinterpret_cast<void*>(to[s])});
    request.dtype = static_cast<Dtype>(dtype);
    request.wide_output = wide_output;
    request.clients = clients;
    request.trim = trim;
    request.weights = std::move(weights);
    request.divisor = divisor;
  }

  cuda::Request request;

 private:
  std::vector<const void*> pointers_;
};

py::tuple answer(const cuda::Findings& findings) {
  std::vector<int64_t> clients;
  for (size_t i = 0; i < findings.guilty.size(); ++i)
    if (findings.guilty[i]) clients.push_back(static_cast<int64_t>(i));
  return py::make_tuple(findings.not_finite, findings.weightless, clients);
}

// Device memory comes from whoever manages the device's, torch say: allocate(bytes) answers with an address. What runs
// on the device meanwhile does so without the interpreter's lock.
void* allocated(const py::object& allocate, int64_t bytes) {
  return reinterpret_cast<void*>(allocate(std::max<int64_t>(bytes, 1)).cast<uintptr_t>());
}

py::tuple reduce(const py::buffer& addresses, const py::buffer& sizes, const py::buffer& outputs, int64_t clients,
                 int dtype, bool wide_output, int64_t trim, std::vector<double> weights, double divisor, int device,
                 uintptr_t stream, const py::object& allocate) {
  const Call call(addresses, sizes, outputs, clients, dtype, wide_output, trim, std::move(weights), divisor);
  void* workspace = allocated(allocate, cuda::workspace_size(call.request));
  cuda::Findings findings;
  {
    const py::gil_scoped_release release;
    cuda::on_device(device, [&] {
      findings = cuda::Reduction(call.request, reinterpret_cast<cudaStream_t>(stream), workspace).finish();
    });
  }
  return answer(findings);
}

// allocate: None takes the memory from the driver.
py::tuple reduce_from_host(const py::buffer& addresses, const py::buffer& sizes, const py::buffer& outputs,
                           int64_t clients, int dtype, bool wide_output, int64_t trim, std::vector<double> weights,
                           double divisor, int device, int64_t memory, const py::object& allocate) {
  const Call call(addresses, sizes, outputs, clients, dtype, wide_output, trim, std::move(weights), divisor);
  const int64_t bound = memory > 0 ? memory : cuda::kHostMemory;
  cuda::Findings findings;
  if (allocate.is_none()) {
    const py::gil_scoped_release release;
    cuda::on_device(device, [&] {
      const cuda::HostReduction reduction(call.request, std::min(bound, cuda::free_memory() / 10 * 9));
      const cuda::DeviceMemory own(reduction.device_bytes());
      findings = reduction.run(own.get());
    });
  } else {
    const cuda::HostReduction reduction(call.request, bound);
    void* given = allocated(allocate, reduction.device_bytes());
    const py::gil_scoped_release release;
    cuda::on_device(device, [&] { findings = reduction.run(given); });
  }
  return answer(findings);
}

py::dict describe(int device) {
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, device), "describing a CUDA device");
  int clock = 0, width = 0;  // kHz and bits; 0 where the driver does not tell
  cudaDeviceGetAttribute(&clock, cudaDevAttrMemoryClockRate, device);
  cudaDeviceGetAttribute(&width, cudaDevAttrGlobalMemoryBusWidth, device);
  py::dict result;
  result["name"] = std::string(properties.name);
  result["capability"] = py::make_tuple(properties.major, properties.minor);
  result["memory"] = static_cast<int64_t>(properties.totalGlobalMem);
  result["bandwidth"] = 2e3 * clock * (width / 8);  // bytes a second, two transfers a clock
  return result;
}

py::dict info() {
  py::dict result;
  int runtime = 0, driver = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  const cudaError_t status = cudaGetDeviceCount(&count);
  result["archs"] = FEDINCENTIVE_CUDA_ARCHS;
  result["runtime"] = runtime;
  result["driver"] = driver;  // 0: none installed
  py::list devices;
  if (status == cudaSuccess) {
    for (int device = 0; device < count; ++device) devices.append(describe(device));
  }
  result["devices"] = devices;
  std::string problem;
  try {
    cuda::check(status, "looking for CUDA devices");
  } catch (const cuda::Error& error) {
    problem = error.what();
  }
  result["problem"] = problem;
  return result;
}

}  // namespace

PYBIND11_MODULE(_cuda, module) {
  module.doc() = "CUDA kernels of fedincentive.aggregation; use the functions of that package instead.";
  py::register_exception<cuda::Error>(module, "CudaError", PyExc_RuntimeError);
  module.def("reduce", &reduce, "Updates and results in device memory.");
  module.def("reduce_from_host", &reduce_from_host, "Updates and results in host memory, of any size.");
  module.def("info", &info, "Runtime, driver and devices.");
}
