// A dense projection as an einsum between an activation and a kernel, which may be a matrix in
// blocks (layers/stored_weight.h). No bias: Gemma has none.
#pragma once

#include <string>

#include "nnx/module.h"

namespace mt::layers {

class DenseGeneral final : public nnx::Module {
 public:
  // `formula`: "bld,dnh->blnh". The kernel is cast to the activation's dtype where it is used.
  DenseGeneral(std::string formula, DType weight_dtype, Shape kernel_shape,
               std::vector<std::string> axes, nnx::Initializer init);
  void visit(nnx::Visitor& v) override { v("kernel", kernel); }
  ir::Value operator()(ir::Value x) const;

  nnx::Variable kernel;

 private:
  friend std::vector<ir::Value> project_together(ir::Value,
                                                 const std::vector<const DenseGeneral*>&);
  int64_t inputs() const;  // how many dimensions of the kernel are contracted: its first ones

  std::string formula_;
  Shape kernel_shape_;  // inputs, then outputs
};

// Several projections of one input; those with kernels in blocks share a call.
std::vector<ir::Value> project_together(ir::Value x,
                                        const std::vector<const DenseGeneral*>& projections);

}  // namespace mt::layers
