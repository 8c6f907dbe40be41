#include "crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fedincentive {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b contributes when k more bytes follow it, so that eight bytes are taken at a time.
Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

uint32_t crc32c_portable(const unsigned char* bytes, size_t size) {
  static const Tables tables = make_tables();
  uint32_t value = 0xffffffff;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint32_t next = 0;
    for (size_t k = 0; k < 8; ++k) {
      const uint32_t mixed = k < 4 ? (value >> (8 * k)) & 0xff : 0;
      next ^= tables[7 - k][bytes[k] ^ mixed];
    }
    value = next;
  }
  for (; size > 0; ++bytes, --size) value = (value >> 8) ^ tables[0][(value ^ *bytes) & 0xff];
  return ~value;
}

#if defined(__x86_64__)
// The instruction takes three cycles and one can start in each, so four parts go at once and are put together after.
constexpr size_t kPart = 2048;

// What a remainder becomes when kPart zero bytes follow: a linear map, byte by byte of it.
using Shift = std::array<std::array<uint32_t, 256>, 4>;
Shift make_shift(const Tables& tables) {
  Shift shift{};
  for (uint32_t place = 0; place < 4; ++place) {
    for (uint32_t bit = 0; bit < 8; ++bit) {
      uint32_t value = 1u << (8 * place + bit);
      for (size_t i = 0; i < kPart; ++i) value = (value >> 8) ^ tables[0][value & 0xff];
      for (uint32_t byte = 0; byte < 256; ++byte)
        if (byte >> bit & 1) shift[place][byte] ^= value;
    }
  }
  return shift;
}

__attribute__((target("sse4.2"))) uint32_t go_on(uint64_t value, const unsigned char* bytes, size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, bytes, 8);
    value = _mm_crc32_u64(value, word);
  }
  uint32_t rest = static_cast<uint32_t>(value);
  for (; size > 0; ++bytes, --size) rest = _mm_crc32_u8(rest, *bytes);
  return ~rest;
}

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const unsigned char* bytes, size_t size) {
  static const Shift shift = make_shift(make_tables());
  uint64_t value = 0xffffffff;
  for (; size >= 4 * kPart; bytes += 4 * kPart, size -= 4 * kPart) {
    uint64_t values[4] = {value, 0, 0, 0};
    for (size_t at = 0; at < kPart; at += 8) {
      for (size_t part = 0; part < 4; ++part) {
        uint64_t word;
        std::memcpy(&word, bytes + part * kPart + at, 8);
        values[part] = _mm_crc32_u64(values[part], word);
      }
    }
    value = values[0];
    for (size_t part = 1; part < 4; ++part)
      value = values[part] ^ shift[0][value & 0xff] ^ shift[1][value >> 8 & 0xff] ^ shift[2][value >> 16 & 0xff] ^
              shift[3][value >> 24];
  }
  return go_on(value, bytes, size);
}

// x^exponent modulo the polynomial, its coefficients from the highest bit of 64 down, as the bytes have theirs.
uint64_t power(int exponent) {
  uint32_t value = 0x80000000;  // reflected, so that multiplying by x shifts right
  for (int i = 0; i < exponent; ++i) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
  return static_cast<uint64_t>(value) << 32;
}

}  // namespace

namespace avx512 {
namespace {

// Sixteen blocks of 128 bits go at once: each is multiplied by what it is worth 256 bytes further on and added to the
// block there, so that 256 bytes are left with the remainder of all. (A carry-less product of reflected numbers is one
// power of x too high: hence the exponents.)
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t crc32c_folded(const unsigned char* bytes, size_t size) {
  constexpr int bits = 8 * 256;
  static const uint64_t ahead[2] = {power(bits + 63), power(bits - 1)};
  if (size < 256) return crc32c_sse42(bytes, size);
  const __m512i factors = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(ahead)));
  __m512i blocks[4];
  for (int i = 0; i < 4; ++i) blocks[i] = _mm512_loadu_si512(bytes + 64 * i);
  const uint32_t start[16] = {0xffffffff};
  blocks[0] = _mm512_xor_si512(blocks[0], _mm512_loadu_si512(start));
  for (bytes += 256, size -= 256; size >= 256; bytes += 256, size -= 256) {
    for (int i = 0; i < 4; ++i) {
      const __m512i first = _mm512_clmulepi64_epi128(blocks[i], factors, 0x00);
      const __m512i second = _mm512_clmulepi64_epi128(blocks[i], factors, 0x11);
      blocks[i] = _mm512_ternarylogic_epi64(first, second, _mm512_loadu_si512(bytes + 64 * i), 0x96);  // their sum
    }
  }
  uint64_t words[32], value = 0;
  std::memcpy(words, blocks, sizeof words);
  for (const uint64_t word : words) value = _mm_crc32_u64(value, word);
  return go_on(value, bytes, size);
}

}  // namespace
}  // namespace avx512
#else
}  // namespace
#endif

std::vector<Crc32c> crc32c_ways() {
  std::vector<Crc32c> ways{crc32c_portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) ways.push_back(crc32c_sse42);
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
    ways.push_back(avx512::crc32c_folded);
#endif
  return ways;
}

uint32_t crc32c(const void* data, size_t size) {
  static const Crc32c fastest = crc32c_ways().back();
  return fastest(static_cast<const unsigned char*>(data), size);
}

void crc32c_chunks(const void* data, size_t size, size_t chunk, uint32_t* out) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (; size > 0; ++out) {
    const size_t next = size < chunk ? size : chunk;
    *out = crc32c(bytes, next);
    bytes += next;
    size -= next;
  }
}

}  // namespace fedincentive
