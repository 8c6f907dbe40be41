#pragma once

#include <cstddef>
#include <cstdint>

namespace fedincentive {

// CRC-32C (Castagnoli) of the bytes; the processor's instruction where it has one, tables elsewhere, the same value.
uint32_t crc32c(const void* data, size_t size);
uint32_t crc32c_portable(const void* data, size_t size);

// The same of every chunk of them, the last one perhaps shorter.
void crc32c_chunks(const void* data, size_t size, size_t chunk, uint32_t* out);

}  // namespace fedincentive
