#include "sha256.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fedincentive {
namespace {

alignas(16) constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t turned(uint32_t word, int by) { return word >> by | word << (32 - by); }

void compress_portable(uint32_t* state, const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int t = 0; t < 16; ++t) {
      const unsigned char* at = blocks + 4 * t;
      w[t] = uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
    }
    for (int t = 16; t < 64; ++t) {
      const uint32_t low = turned(w[t - 15], 7) ^ turned(w[t - 15], 18) ^ w[t - 15] >> 3;
      const uint32_t high = turned(w[t - 2], 17) ^ turned(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + low + w[t - 7] + high;
    }
    uint32_t s[8];
    std::copy(state, state + 8, s);
    for (int t = 0; t < 64; ++t) {
      const uint32_t chosen = (s[4] & s[5]) ^ (~s[4] & s[6]);
      const uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
      const uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + chosen + kRounds[t] + w[t];
      const uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + most;
      std::copy_backward(s, s + 7, s + 8);
      s[4] += one;
      s[0] = one + two;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)
// The instructions keep the words a, b, e, f of the state in one register and c, d, g, h in the other, a and c highest.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_native(uint32_t* state, const unsigned char* blocks,
                                                                 size_t count) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i* const kept = reinterpret_cast<__m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(kept), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(kept + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[16];  // four words each
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) {
      if (t < 4) {
        w[t] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(blocks) + t), big_endian);
      } else {
        const __m128i sum =
            _mm_add_epi32(_mm_sha256msg1_epu32(w[t - 4], w[t - 3]), _mm_alignr_epi8(w[t - 1], w[t - 2], 4));
        w[t] = _mm_sha256msg2_epu32(sum, w[t - 1]);
      }
      const __m128i words = _mm_add_epi32(w[t], _mm_load_si128(reinterpret_cast<const __m128i*>(kRounds) + t));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(words, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(kept, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(kept + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool has_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1) && __builtin_cpu_supports("sse4.1");
}
#endif

}  // namespace

std::vector<Compress> sha256_ways() {
  std::vector<Compress> ways{compress_portable};
#if defined(__x86_64__)
  static const bool found = has_instructions();  // asked once: a virtual machine takes long to answer
  if (found) ways.push_back(compress_native);
#endif
  return ways;
}

void Sha256::add(const unsigned char* bytes, size_t size) {
  const size_t held = size_ % 64;
  size_ += size;
  if (held > 0) {
    const size_t taken = std::min(size, 64 - held);
    if (taken > 0) std::memcpy(waiting_ + held, bytes, taken);
    bytes += taken;
    size -= taken;
    if (held + taken < 64) return;
    compress_(state_, waiting_, 1);
  }
  compress_(state_, bytes, size / 64);
  if (size % 64 > 0) std::memcpy(waiting_, bytes + size / 64 * 64, size % 64);
}

// A one, zeros, and the number of bits in the last eight bytes of a block.
void Sha256::finish(unsigned char* digest) {
  unsigned char end[72] = {0x80};
  const uint64_t bits = uint64_t{size_} * 8;
  const size_t zeros = (119 - size_ % 64) % 64;
  for (int i = 0; i < 8; ++i)
    end[1 + zeros + static_cast<size_t>(i)] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  add(end, 1 + zeros + 8);
  for (int i = 0; i < 8; ++i)
    for (int k = 0; k < 4; ++k) digest[4 * i + k] = static_cast<unsigned char>(state_[i] >> (24 - 8 * k));
}

}  // namespace fedincentive
