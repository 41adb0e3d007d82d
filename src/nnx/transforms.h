// scan, remat, grad and value_and_grad over modules. Each binds the variables of the modules to the
// values of the region it traces and puts the outer values back afterwards.
#pragma once

#include <functional>
#include <vector>

#include "ir/ops.h"
#include "nnx/state.h"

namespace mt::nnx {

using Values = std::vector<ir::Value>;

// Turns the variables of `module` (one layer's) into those of `length` stacked layers: each gains
// an axis at `axis` (or at its end if it has fewer) with the logical name `axis_name`.
void stack_layers(Module& module, int64_t length, int64_t axis, const std::string& axis_name);

// Runs fn(carry, index) `length` times with the variables of `module` bound to layer 0, 1, ... of
// their stacks; `index` is a s32 scalar. What fn returns behind the carry, and what the layers sow,
// is stacked along axis 0; `module` sows the latter. Variables that fn changes get their new
// stacks.
Values scan(Module& module, int64_t length, const Values& carry,
            const std::function<Values(const Values& carry, ir::Value index)>& fn);

// Runs fn(inputs) so that the backward pass runs it again, except for values tagged with a name in
// `saved` (ir::checkpoint_name). The module's variables are inputs too.
Values remat(Module& module, const std::vector<std::string>& saved, const Values& inputs,
             const std::function<Values(const Values&)>& fn);

struct ValueAndGrad {
  ir::Value value;  // the scalar
  Values aux;       // what else fn returned
  State gradients;  // paths and types of the variables, their gradients as values
};

// fn returns {loss, aux...}. Gradients with respect to the variables that `wrt` takes. Inside the
// body of a scan or remat, `region` is its graph (that of any of its values): while fn runs, the
// variables are those of the region.
ValueAndGrad value_and_grad(Module& module, const Filter& wrt, const std::function<Values()>& fn,
                            ir::Graph* region = nullptr);
State grad(Module& module, const Filter& wrt, const std::function<Values()>& fn,
           ir::Graph* region = nullptr);

}  // namespace mt::nnx
