// float16 and bfloat16 by integer arithmetic, the same bits on every machine. Internal linkage on purpose: each
// instruction set's unit compiles its own copy.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define FEDINCENTIVE_HOST_DEVICE __host__ __device__
#else
#define FEDINCENTIVE_HOST_DEVICE
#endif

namespace fedincentive {
namespace {

FEDINCENTIVE_HOST_DEVICE inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

FEDINCENTIVE_HOST_DEVICE inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

FEDINCENTIVE_HOST_DEVICE inline float widen_bfloat16(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

FEDINCENTIVE_HOST_DEVICE inline float widen_float16(uint16_t h) {
  const uint32_t exponent_mask = 0x7c00u << 13;
  uint32_t bits = (h & 0x7fffu) << 13;
  const uint32_t exponent = bits & exponent_mask;
  bits += (127u - 15u) << 23;
  if (exponent == exponent_mask) bits += (128u - 16u) << 23;                              // infinity and NaN
  if (exponent == 0) bits = bits_of(float_of(bits + (1u << 23)) - float_of(113u << 23));  // subnormal
  return float_of(bits | (static_cast<uint32_t>(h & 0x8000u) << 16));
}

// Rounds to float32 so that a second rounding to fewer bits gives what one rounding would: truncate, keep a sticky bit.
FEDINCENTIVE_HOST_DEVICE inline uint32_t round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  const double magnitude = value < 0 ? -value : value;
  const double back_magnitude = back < 0 ? -back : back;
  uint32_t bits = bits_of(nearest);
  bits -= back_magnitude > magnitude ? 1u : 0u;
  return bits | (back != value ? 1u : 0u);
}

FEDINCENTIVE_HOST_DEVICE inline uint16_t narrow_bfloat16(double value) {
  if (value != value) return 0x7fc0;
  const uint32_t bits = round_to_odd(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FEDINCENTIVE_HOST_DEVICE inline uint16_t narrow_float16(double value) {
  if (value != value) return 0x7e00;
  const uint32_t signed_bits = round_to_odd(value);
  const uint32_t sign = (signed_bits >> 16) & 0x8000u;
  uint32_t bits = signed_bits & 0x7fffffffu;
  if (bits >= (143u << 23)) return static_cast<uint16_t>(sign | 0x7c00u);  // 65536 and beyond
  if (bits < (113u << 23)) {                                               // subnormal: a float addition rounds it
    const uint32_t magic = 126u << 23;                                     // 0.5, whose last bit is 2^-24
    return static_cast<uint16_t>(sign | (bits_of(float_of(bits) + float_of(magic)) - magic));
  }
  bits += 0xfffu + ((bits >> 13) & 1u) - ((127u - 15u) << 23);
  return static_cast<uint16_t>(sign | (bits >> 13));
}

}  // namespace
}  // namespace fedincentive
