// The checksum of bytes that travel: CRC-32C, as iSCSI, ext4 and SSE 4.2 have it.
#pragma once

#include <cstdint>

namespace distgnn {

// CRC-32C of num_bytes bytes, on all threads; 0 for none. Every flip of up to three bits changes it
// in less than 2^28 - 4 bytes of data, and so does every run of altered bits that spans at most 32.
std::uint32_t crc32c(const std::uint8_t* data, std::int64_t num_bytes);

}  // namespace distgnn
