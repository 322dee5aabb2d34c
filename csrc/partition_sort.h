// Numbers in ascending order; partition/large/ calls it.
#pragma once

#include "partition_array.h"

namespace distgnn {

// Sorts in place, with as much memory again.
void sort_numbers(Array<std::int64_t> values);

}  // namespace distgnn
