"""Kernels of a CUDA device, in Triton, as `distgnn._kernels` has them for the processor.

The functions have the names and arguments of the compiled ones, and take tensors where those take
numpy views. They add in a fixed order, so that a result has the same bits in every run. Importing
this package imports Triton; `distgnn.kernels.devices` does so when a CUDA tensor needs a kernel.

`schedule` says which program walks which edges, `launch` how large its tile is. README.md says what
the other modules do.
"""

from distgnn.gpu.attention import attend as attend
from distgnn.gpu.attention import merge_attention as merge_attention
from distgnn.gpu.attention_backward import attend_backward as attend_backward
from distgnn.gpu.attention_finish import attention_delta as attention_delta
from distgnn.gpu.attention_finish import finish_attention as finish_attention
from distgnn.gpu.codecs import decode_rows as decode_rows
from distgnn.gpu.codecs import encode_rows as encode_rows
from distgnn.gpu.edges import sddmm_add as sddmm_add
from distgnn.gpu.edges import sddmm_dot as sddmm_dot
from distgnn.gpu.edges import sddmm_leaky as sddmm_leaky
from distgnn.gpu.edges import sddmm_leaky_backward as sddmm_leaky_backward
from distgnn.gpu.extremes import extreme_scratch as extreme_scratch
from distgnn.gpu.extremes import merge_max as merge_max
from distgnn.gpu.extremes import merge_received_max as merge_received_max
from distgnn.gpu.extremes import spmm_extreme as spmm_extreme
from distgnn.gpu.extremes import spmm_extreme_backward as spmm_extreme_backward
from distgnn.gpu.losses import cross_entropy as cross_entropy
from distgnn.gpu.norms import column_gradient_sums as column_gradient_sums
from distgnn.gpu.norms import column_moments as column_moments
from distgnn.gpu.norms import columns_backward as columns_backward
from distgnn.gpu.norms import normalise_columns as normalise_columns
from distgnn.gpu.norms import normalise_rows as normalise_rows
from distgnn.gpu.norms import rows_backward as rows_backward
from distgnn.gpu.rows import blend_rows as blend_rows
from distgnn.gpu.rows import dropout as dropout
from distgnn.gpu.rows import dropout_values as dropout_values
from distgnn.gpu.rows import gather_rows as gather_rows
from distgnn.gpu.rows import scale_rows as scale_rows
from distgnn.gpu.sums import edge_sum as edge_sum
from distgnn.gpu.sums import scatter_add_rows as scatter_add_rows
from distgnn.gpu.sums import spmm_heads as spmm_heads
from distgnn.gpu.sums import spmm_sum as spmm_sum
