// Python sees addresses, sizes and numbers; arrays and tensors are taken apart in fedincentive/aggregation.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <stdexcept>
#include <string>
#include <tuple>

#include "canonical.hpp"
#include "core/crc32c.hpp"
#include "core/files.hpp"
#include "core/plan.hpp"
#include "core/process.hpp"
#include "core/sha256.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/distances.hpp"
#include "cpu/reduce.hpp"
#include "cpu/stored.hpp"
#include "plain.hpp"

namespace py = pybind11;
using namespace fedincentive;

namespace {

// Without the interpreter's lock; Ctrl-C is still answered, by the exception that Python's handler raises.
class Unlocked {
 public:
  Unlocked() : interruptible_(&check) {}

 private:
  static void check() {
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  py::gil_scoped_release release_;
  Interruptible interruptible_;
};

// (segment, client, shape, strides in bytes) of an array whose values are not contiguous
using Strided = std::tuple<int64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

const int64_t* integers(const py::buffer_info& info) {
  if (info.itemsize != 8) throw std::invalid_argument("expected a buffer of 64-bit integers");
  return static_cast<const int64_t*>(info.ptr);
}

// The arrays of all clients: addresses[segment * clients + client], sizes[segment].
class Arrays {
 public:
  Arrays(const py::buffer& addresses, const py::buffer& sizes, int64_t clients, const std::vector<Strided>& strided)
      : clients_(clients) {
    const py::buffer_info address_info = addresses.request(), size_info = sizes.request();
    if (address_info.size != size_info.size * clients)
      throw std::invalid_argument("one address per segment and client is needed");
    const int64_t* from = integers(address_info);
    for (int64_t i = 0; i < address_info.size; ++i) pointers_.push_back(reinterpret_cast<const void*>(from[i]));
    sizes_.assign(integers(size_info), integers(size_info) + size_info.size);
    if (strided.empty()) return;
    layout_of_.assign(pointers_.size(), nullptr);
    for (const auto& [segment, client, shape, strides] : strided) {
      if (shape.size() > kMaxDims) throw std::invalid_argument("an array has too many dimensions");
      Layout layout{static_cast<int>(shape.size()), {}, {}};
      std::copy(shape.begin(), shape.end(), layout.shape);
      std::copy(strides.begin(), strides.end(), layout.strides);
      layouts_.push_back(layout);
      layout_of_.at(static_cast<size_t>(segment * clients + client)) = &layouts_.back();
    }
  }

  int64_t segments() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t size(int64_t segment) const { return sizes_[static_cast<size_t>(segment)]; }
  const void* const* pointers(int64_t segment) const { return pointers_.data() + segment * clients_; }
  const Layout* const* layouts(int64_t segment) const {
    return layout_of_.empty() ? nullptr : layout_of_.data() + segment * clients_;
  }

 private:
  int64_t clients_;
  std::vector<const void*> pointers_;
  std::vector<int64_t> sizes_;
  std::vector<const Layout*> layout_of_;
  std::deque<Layout> layouts_;
};

Request checked_request(int dtype, int64_t clients, int64_t trim, std::vector<double> weights, double divisor,
                        double share) {
  if (share < 0 || share >= 0.5 || (share > 0 && (trim != 0 || weights.empty())))
    throw std::invalid_argument("share is out of range");
  if (trim < 0 || 2 * trim >= clients) throw std::invalid_argument("trim is out of range");
  if (!weights.empty() && static_cast<int64_t>(weights.size()) != clients)
    throw std::invalid_argument("one weight per client is needed");
  if (dtype < 0 || dtype > 3) throw std::invalid_argument("unknown dtype");
  Request request;
  request.dtype = static_cast<Dtype>(dtype);
  request.clients = clients;
  request.trim = trim;
  request.weights = std::move(weights);
  request.divisor = divisor;
  request.share = share;
  return request;
}

py::tuple reduce_arrays(const py::buffer& addresses, const py::buffer& sizes, const py::buffer& outputs,
                        int64_t clients, const std::vector<Strided>& strided, int dtype, bool wide_output, int64_t trim,
                        std::vector<double> weights, double divisor, double share, int64_t threads,
                        const std::string& isa, bool stop_early) {
  const Arrays arrays(addresses, sizes, clients, strided);
  const py::buffer_info output_info = outputs.request();
  if (output_info.size != arrays.segments()) throw std::invalid_argument("one output per segment is needed");
  Request request = checked_request(dtype, clients, trim, std::move(weights), divisor, share);
  request.wide_output = wide_output;
  request.threads = threads;
  request.stop_early = stop_early;
  for (int64_t s = 0; s < arrays.segments(); ++s)
    request.segments.push_back(
        {arrays.pointers(s), arrays.layouts(s), arrays.size(s), reinterpret_cast<void*>(integers(output_info)[s])});
  const Kernels& kernels = kernels_of(isa);
  Findings findings;
  {
    const Unlocked unlocked;
    findings = reduce(request, kernels);
  }
  return py::make_tuple(findings.not_finite, findings.weightless, findings.clients, findings.stopped);
}

// dtypes[participant]: the last one may differ (a center held in float64)
std::vector<double> distances(const py::buffer& addresses, const py::buffer& sizes, int64_t participants,
                              const std::vector<Strided>& strided, const std::vector<int>& dtypes, bool to_last,
                              int64_t around, const std::vector<double>& scales, int64_t threads,
                              const std::string& isa) {
  const Arrays arrays(addresses, sizes, participants, strided);
  if (!scales.empty() && (static_cast<int64_t>(scales.size()) != participants || around < 0 || around >= participants))
    throw std::invalid_argument("one scale per participant is needed");
  if (static_cast<int64_t>(dtypes.size()) != participants * arrays.segments())
    throw std::invalid_argument("one dtype per segment and participant is needed");
  std::vector<Cloud> clouds;
  for (int64_t s = 0; s < arrays.segments(); ++s) {
    Cloud cloud{{}, arrays.size(s)};
    for (int64_t i = 0; i < participants; ++i)
      cloud.sources.push_back({arrays.pointers(s)[i], arrays.layouts(s) ? arrays.layouts(s)[i] : nullptr,
                               static_cast<Dtype>(dtypes[static_cast<size_t>(s * participants + i)])});
    clouds.push_back(std::move(cloud));
  }
  const Kernels& kernels = kernels_of(isa);
  const Unlocked unlocked;
  return squared_distances(clouds, to_last, around, scales, threads, kernels);
}

bool all_finite(int64_t address, int64_t count, int dtype, int64_t threads, const std::string& isa) {
  const Kernels& kernels = kernels_of(isa);
  const Unlocked unlocked;
  const int64_t length = int64_t{1} << 18;
  const auto kind = static_cast<Dtype>(dtype);
  const auto* from = reinterpret_cast<const char*>(address);
  std::atomic<bool> finite{true};
  run_parallel((count + length - 1) / length, threads, [&](int64_t, int64_t item) {
    const int64_t begin = item * length;
    if (!kernels.all_finite(kind, from + begin * item_size(kind), std::min(length, count - begin))) finite = false;
  });
  return finite;
}

// Which clients sent a NaN or an infinity. A client is left alone once one was found.
std::vector<int64_t> not_finite(const py::buffer& addresses, const py::buffer& sizes, int64_t clients,
                                const std::vector<Strided>& strided, int dtype, int64_t threads,
                                const std::string& isa) {
  constexpr int64_t first = int64_t{1} << 11, length = int64_t{1} << 17;  // many send nothing else
  const Arrays arrays(addresses, sizes, clients, strided);
  const Kernels& kernels = kernels_of(isa);
  const auto kind = static_cast<Dtype>(dtype);
  const int64_t item = item_size(kind);
  std::vector<std::atomic<bool>> bad(static_cast<size_t>(clients));
  const auto look = [&](int64_t client, int64_t segment, std::vector<unsigned char>& staging) {
    const auto* from = static_cast<const unsigned char*>(arrays.pointers(segment)[client]);
    const Layout* layout = arrays.layouts(segment) ? arrays.layouts(segment)[client] : nullptr;
    if (layout) staging.resize(static_cast<size_t>(length * item));
    for (int64_t begin = 0, count; begin < arrays.size(segment) && !bad[client]; begin += count) {
      poll();
      count = std::min(begin == 0 ? first : length, arrays.size(segment) - begin);
      if (layout) gather(from, *layout, item, begin, count, staging.data());
      if (!kernels.all_finite(kind, layout ? staging.data() : from + begin * item, count)) bad[client] = true;
    }
  };
  {
    const Unlocked unlocked;
    run_parallel(clients, threads, [&](int64_t, int64_t client) {
      std::vector<unsigned char> staging;
      for (int64_t segment = 0; segment < arrays.segments(); ++segment) look(client, segment, staging);
    });
  }
  std::vector<int64_t> found;
  for (int64_t client = 0; client < clients; ++client)
    if (bad[client]) found.push_back(client);
  return found;
}

py::dict plan(int64_t n, int64_t k) {
  const auto plan = plan_for(n, k);
  py::list steps;
  for (const Step& step : plan->steps)
    steps.append(py::make_tuple(static_cast<int>(step.kind), step.begin, step.count, step.wire));
  py::list pairs;
  for (const Pair& pair : plan->pairs) pairs.append(py::make_tuple(pair.low, pair.high));
  py::dict result;
  result["wires"] = plan->wires;
  result["comparators"] = plan->comparators;
  result["steps"] = steps;
  result["pairs"] = pairs;
  result["wires_of"] = plan->wires_of;
  result["lowest"] = plan->lowest;
  result["highest"] = plan->highest;
  return result;
}

uint32_t checksum(const py::buffer& data) {
  const py::buffer_info info = data.request();
  const Unlocked unlocked;
  return crc32c(info.ptr, static_cast<size_t>(info.size * info.itemsize));
}

std::vector<uint32_t> checksum_every_way(const py::buffer& data) {
  const py::buffer_info info = data.request();
  std::vector<uint32_t> found;
  for (const Crc32c way : crc32c_ways())
    found.push_back(way(static_cast<const unsigned char*>(info.ptr), static_cast<size_t>(info.size * info.itemsize)));
  return found;
}

std::vector<uint32_t> checksums(const py::buffer& data, int64_t chunk) {
  const py::buffer_info info = data.request();
  const Unlocked unlocked;
  const int64_t size = info.size * info.itemsize;
  std::vector<uint32_t> found(static_cast<size_t>((size + chunk - 1) / chunk));
  crc32c_chunks(info.ptr, static_cast<size_t>(size), static_cast<size_t>(chunk), found.data());
  return found;
}

// The leaf of each record, SHA-256 of 0x00, its salt and itself (fedincentive/provenance/records.py).
py::bytes sha256_leaves(const py::buffer& salts, const py::list& records) {
  const py::buffer_info info = salts.request();
  const size_t size = static_cast<size_t>(info.size * info.itemsize), count = records.size();
  if (count > 0 && size % count != 0) throw std::invalid_argument("every record needs a salt of the same size");
  const Compress fastest = sha256_ways().back();
  const unsigned char* salt = static_cast<const unsigned char*>(info.ptr);
  const unsigned char zero = 0;
  std::string leaves(count * kDigest, '\0');
  for (size_t i = 0; i < count; ++i) {
    char* bytes = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(PyList_GET_ITEM(records.ptr(), static_cast<Py_ssize_t>(i)), &bytes, &length) != 0)
      throw py::error_already_set();
    Sha256 hash(fastest);
    hash.add(&zero, 1);
    hash.add(salt + size / count * i, size / count);
    hash.add(reinterpret_cast<unsigned char*>(bytes), static_cast<size_t>(length));
    hash.finish(reinterpret_cast<unsigned char*>(&leaves[i * kDigest]));
  }
  return leaves;
}

// The node over each pair of hashes, SHA-256 of 0x01 and both (fedincentive/provenance/merkle.py); one left over is
// not.
py::bytes sha256_nodes(const py::buffer& hashes) {
  const py::buffer_info info = hashes.request();
  const size_t count = static_cast<size_t>(info.size * info.itemsize) / (2 * kDigest);
  const Compress fastest = sha256_ways().back();
  const unsigned char one = 1;
  std::string nodes(count * kDigest, '\0');
  for (size_t i = 0; i < count; ++i) {
    Sha256 hash(fastest);
    hash.add(&one, 1);
    hash.add(static_cast<const unsigned char*>(info.ptr) + i * 2 * kDigest, 2 * kDigest);
    hash.finish(reinterpret_cast<unsigned char*>(&nodes[i * kDigest]));
  }
  return nodes;
}

std::vector<py::bytes> sha256_every_way(const py::buffer& data) {
  const py::buffer_info info = data.request();
  std::vector<py::bytes> found;
  for (const Compress way : sha256_ways()) {
    std::string digest(kDigest, '\0');
    Sha256 hash(way);
    hash.add(static_cast<const unsigned char*>(info.ptr), static_cast<size_t>(info.size * info.itemsize));
    hash.finish(reinterpret_cast<unsigned char*>(&digest[0]));
    found.push_back(digest);
  }
  return found;
}

// (bytes read, errno, checksums)
std::tuple<int64_t, int, std::vector<uint32_t>> read_file(int file, int64_t offset, int64_t address, int64_t size,
                                                          int64_t chunk) {
  const Unlocked unlocked;
  Received received = read_checked({file, -1, offset, reinterpret_cast<unsigned char*>(address), size}, chunk);
  return {received.size, received.error, std::move(received.checksums)};
}

// (address or 0, file, the same past the cache or -1, whether to map it, offset, address of checksums or 0) of each
using Sources = std::vector<std::tuple<int64_t, int, int, bool, int64_t, int64_t>>;
py::tuple reduce_files(const Sources& sources, std::tuple<int64_t, int64_t> range, int64_t chunk, int64_t piece,
                       std::tuple<int64_t, int, int64_t> out, int dtype, int64_t trim, std::vector<double> weights,
                       double divisor, double share, int64_t threads, const std::string& isa, bool stop_early) {
  StoredRequest stored{};
  for (const auto& [address, file, direct, mapped, offset, checksums] : sources)
    stored.sources.push_back({reinterpret_cast<const unsigned char*>(address), file, direct, mapped, offset,
                              reinterpret_cast<const uint32_t*>(checksums)});
  std::tie(stored.begin, stored.end) = range;
  stored.chunk = chunk;
  stored.piece = piece;
  stored.out = reinterpret_cast<unsigned char*>(std::get<0>(out));
  stored.out_file = std::get<1>(out);
  stored.out_offset = std::get<2>(out);
  stored.request =
      checked_request(dtype, static_cast<int64_t>(sources.size()), trim, std::move(weights), divisor, share);
  stored.request.threads = threads;
  stored.request.stop_early = stop_early;
  const Kernels& kernels = kernels_of(isa);
  StoredFindings answer;
  {
    const Unlocked unlocked;
    answer = reduce_stored(stored, kernels);
  }
  const Findings& found = answer.findings;
  return py::make_tuple(py::make_tuple(found.not_finite, found.weightless, found.clients, found.stopped),
                        static_cast<int>(answer.trouble), answer.client, answer.detail);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Compiled kernels of fedincentive.aggregation; use the functions of that package instead.";
  module.def("reduce", &reduce_arrays);
  module.def("plain", &plain, "Addresses of arrays or tensors that need no closer look, or None.");
  module.def("plain_dicts", &plain_dicts, "The same of all entries of clients' dicts, with the values of each.");
  module.def("squared_distances", &distances);
  module.def("all_finite", &all_finite,
             "Whether values in memory are neither NaN nor infinite; also how fast memory is read.");
  module.def("not_finite", &not_finite, "The clients that sent a NaN or an infinity.");
  module.def("crc32c", &checksum, "CRC-32C of a contiguous buffer's bytes.");
  module.def("crc32c_every_way", &checksum_every_way, "The same in all ways this processor has, for tests.");
  module.def("crc32c_chunks", &checksums, "The same of every chunk of them.");
  module.def("canonical", &canonical, py::arg("value"), py::arg("spaced") = false, "JSON in its one form, or None.");
  module.def("interleaved", &interleaved, "Parts of bytes and the canonical JSON of the values between them, or None.");
  module.def("plain_copy", &plain_copy, py::arg("value"), py::arg("depth"), "A copy of a plain value, or None.");
  module.def("sha256_leaves", &sha256_leaves, "The salted leaves of a list of records.");
  module.def("sha256_nodes", &sha256_nodes, "The Merkle nodes over pairs of hashes.");
  module.def("sha256_every_way", &sha256_every_way, "SHA-256 in all ways this processor has, for tests.");
  module.def("read_file", &read_file, "Reads from an open file to memory, with the CRC-32C of every chunk.");
  module.def("reduce_files", &reduce_files, "`reduce` over one entry of updates in files or memory, piece by piece.");
  module.def("cached_share", &cached_share, "The share of an open file that is in the system's cache.");
  module.def("compiled_isas", &compiled_isas);
  module.def("supported_isas", &supported_isas);
  module.def("plan", &plan, "The selection network for n clients and k trimmed per side, for tests and curiosity.");
}
