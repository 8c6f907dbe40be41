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
// Two units of the processor can do the work, one by its CRC instruction and one by products of polynomials: each block
// is halved between them. The instruction takes three cycles and one can start in each, so it works on four parts.
constexpr size_t kHalf = 8192;
constexpr size_t kPart = kHalf / 4;
constexpr size_t kFold = 128;        // bytes of the first half taken in a step
constexpr size_t kWalk = kFold / 4;  // bytes of each part of the second half

// What a remainder becomes when kPart zero bytes follow: a linear map, byte by byte of it.
struct Shift {
  std::array<std::array<uint32_t, 256>, 4> of{};

  explicit Shift(const Tables& tables) {
    for (uint32_t place = 0; place < 4; ++place) {
      for (uint32_t bit = 0; bit < 8; ++bit) {
        uint32_t value = 1u << (8 * place + bit);
        for (size_t i = 0; i < kPart; ++i) value = (value >> 8) ^ tables[0][value & 0xff];
        for (uint32_t byte = 0; byte < 256; ++byte)
          if (byte >> bit & 1) of[place][byte] ^= value;
      }
    }
  }

  uint64_t operator()(uint64_t value) const {
    return of[0][value & 0xff] ^ of[1][value >> 8 & 0xff] ^ of[2][value >> 16 & 0xff] ^ of[3][value >> 24];
  }
};

// x^exponent modulo the polynomial, its coefficients from the highest bit of 64 down, as the bytes have theirs.
uint64_t power(int exponent) {
  uint32_t value = 0x80000000;  // reflected, so that multiplying by x shifts right
  for (int i = 0; i < exponent; ++i) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0);
  return static_cast<uint64_t>(value) << 32;
}

__attribute__((target("sse4.2"))) inline uint64_t with_word(uint64_t value, const unsigned char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, 8);
  return _mm_crc32_u64(value, word);
}

__attribute__((target("sse4.2"))) inline void walk(uint64_t (&values)[4], const unsigned char* bytes) {
  for (size_t at = 0; at < kWalk; at += 8)
    for (size_t part = 0; part < 4; ++part) values[part] = with_word(values[part], bytes + part * kPart + at);
}

__attribute__((target("sse4.2"))) inline uint32_t finish(uint64_t value, const unsigned char* bytes, size_t size) {
  for (; size >= 8; bytes += 8, size -= 8) value = with_word(value, bytes);
  uint32_t rest = static_cast<uint32_t>(value);
  for (; size > 0; ++bytes, --size) rest = _mm_crc32_u8(rest, *bytes);
  return ~rest;
}

inline __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

// Eight blocks of 128 bits are folded at once: each is multiplied by what it is worth 128 bytes further on and added to
// the block there, so that 128 bytes are left with the remainder of all. (A carry-less product of reflected numbers is
// one power of x too high: hence the exponents.)
__attribute__((target("sse4.2,pclmul"))) uint32_t crc32c_halved(const unsigned char* bytes, size_t size) {
  static const Shift shift(make_tables());
  static const uint64_t ahead[2] = {power(8 * kFold + 63), power(8 * kFold - 1)};
  const __m128i factors = load(ahead);
  uint64_t value = 0xffffffff;
  for (; size >= 2 * kHalf; bytes += 2 * kHalf, size -= 2 * kHalf) {
    const unsigned char* second = bytes + kHalf;
    uint64_t parts[4] = {};
    __m128i blocks[8];
    for (int i = 0; i < 8; ++i) blocks[i] = load(bytes + 16 * i);
    blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi64_si128(static_cast<int64_t>(value)));
    walk(parts, second);
    for (size_t step = 1; step < kHalf / kFold; ++step) {
      for (int i = 0; i < 8; ++i) {
        const __m128i low = _mm_clmulepi64_si128(blocks[i], factors, 0x00);
        const __m128i high = _mm_clmulepi64_si128(blocks[i], factors, 0x11);
        blocks[i] = _mm_xor_si128(_mm_xor_si128(low, high), load(bytes + step * kFold + 16 * i));
      }
      walk(parts, second + step * kWalk);
    }
    unsigned char left[kFold];
    std::memcpy(left, blocks, kFold);
    value = 0;
    for (size_t at = 0; at < kFold; at += 8) value = with_word(value, left + at);
    for (const uint64_t part : parts) value = shift(value) ^ part;
  }
  return finish(value, bytes, size);
}

}  // namespace

namespace avx512 {
namespace {

// The same fold with sixteen blocks at once and nothing beside it: where the processor has such wide products they
// alone are as fast as both units above, or twice as fast.
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t crc32c_wide(const unsigned char* bytes, size_t size) {
  constexpr size_t fold = 256;
  static const uint64_t ahead[2] = {power(8 * fold + 63), power(8 * fold - 1)};
  if (size < fold) return finish(0xffffffff, bytes, size);
  const __m512i factors = _mm512_broadcast_i32x4(load(ahead));
  __m512i blocks[4];
  for (int i = 0; i < 4; ++i) blocks[i] = _mm512_loadu_si512(bytes + 64 * i);
  const uint32_t start[16] = {0xffffffff};
  blocks[0] = _mm512_xor_si512(blocks[0], _mm512_loadu_si512(start));
  for (bytes += fold, size -= fold; size >= fold; bytes += fold, size -= fold) {
    for (int i = 0; i < 4; ++i) {
      const __m512i low = _mm512_clmulepi64_epi128(blocks[i], factors, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(blocks[i], factors, 0x11);
      blocks[i] = _mm512_ternarylogic_epi64(low, high, _mm512_loadu_si512(bytes + 64 * i), 0x96);  // their sum
    }
  }
  unsigned char left[fold];
  std::memcpy(left, blocks, fold);
  uint64_t value = 0;
  for (size_t at = 0; at < fold; at += 8) value = with_word(value, left + at);
  return finish(value, bytes, size);
}

}  // namespace
}  // namespace avx512
#else
}  // namespace
#endif

std::vector<Crc32c> crc32c_ways() {
  std::vector<Crc32c> ways{crc32c_portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) ways.push_back(crc32c_halved);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) ways.push_back(avx512::crc32c_wide);
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
