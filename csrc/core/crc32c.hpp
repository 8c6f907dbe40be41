#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fedincentive {

// CRC-32C (Castagnoli) of the bytes, in the fastest way this processor has.
uint32_t crc32c(const void* data, size_t size);

// The same of every chunk of them, the last one perhaps shorter.
void crc32c_chunks(const void* data, size_t size, size_t chunk, uint32_t* out);

// All ways it has, the slowest first: tables, the processor's own instructions, its widest ones.
using Crc32c = uint32_t (*)(const unsigned char* bytes, size_t size);
std::vector<Crc32c> crc32c_ways();

}  // namespace fedincentive
