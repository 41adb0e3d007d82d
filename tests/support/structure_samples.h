// Samples for the gradients of ops with regions and of annotations, and for second derivatives.
#pragma once

#include <vector>

#include "autodiff/vjp.h"
#include "support/op_samples.h"

namespace mt::testing {

inline ir::Value sum_of_squares(ir::Value x) { return ir::sum_all(x * x); }

// exp by a rule of its own.
inline ir::Value custom_exp(ir::Value x) {
  return ir::custom_vjp(
      "exp", {x}, [](SampleIn in) { return SampleOut{ir::exp(in[0])}; },
      [](SampleIn, SampleIn results, SampleIn cotangents) {
        return SampleOut{results[0] * cotangents[0]};
      })[0];
}

inline std::vector<GradientSample> annotation_samples() {
  using ir::OpKind;
  return {
      {OpKind::kName,
       "name",
       {{{2}}},
       [](SampleIn in) { return SampleOut{ir::sin(ir::checkpoint_name(in[0], "x"))}; }},
      {OpKind::kBarrier,
       "barrier",
       {{{2}}, {{3}}},
       [](SampleIn in) {
         const SampleOut out = ir::barrier({ir::sin(in[0]), in[1], in[0]});
         return SampleOut{out[0], ir::exp(out[1])};  // the third is not used
       }},
      {OpKind::kShardingConstraint,
       "sharding_constraint",
       {{{2, 4}}},
       [](SampleIn in) {
         return SampleOut{ir::sin(ir::sharding_constraint(in[0], {{{"fsdp"}, {}}}))};
       }},
      {OpKind::kCustomVjp,
       "custom_vjp",
       {{{3}}},
       [](SampleIn in) { return SampleOut{ir::sin(custom_exp(in[0]))}; }},
      {OpKind::kCustomVjp,
       "custom_vjp of two results, one not used",
       {{{3}}, {{3}}},
       [](SampleIn in) {
         const SampleOut y = ir::custom_vjp(
             "product", in,
             [](SampleIn a) {
               return SampleOut{a[0] * a[1], a[0] + a[1]};
             },
             [](SampleIn a, SampleIn, SampleIn ct) {
               MT_CHECK(!ct[1]);
               return SampleOut{ct[0] * a[1], ct[0] * a[0]};
             });
         return SampleOut{ir::sin(y[0])};
       }},
  };
}

inline std::vector<GradientSample> scan_samples() {
  using ir::OpKind;
  return {
      {OpKind::kScan,
       "scan: a carry and captured constants",
       {{{2}}, {{2}}, {{}}},
       [](SampleIn in) {
         return ir::scan({in[0]}, {}, {.length = 3},
                         [&](SampleIn s) { return SampleOut{ir::tanh(s[0] * in[1] + in[2])}; });
       }},
      {OpKind::kScan,
       "scan: xs and ys along other axes",
       {{{2}}, {{3, 2}}, {{2, 3}}},
       [](SampleIn in) {
         return ir::scan({in[0]}, {in[1], in[2]},
                         {.length = 3, .x_axes = {0, 1}, .y_axes = {1, 0, 1}}, [](SampleIn s) {
                           const ir::Value next = ir::sin(s[0] * s[1]) + s[2];
                           const ir::Value outer = ir::einsum("a,b->ab", next, s[2]);
                           return SampleOut{next, next * s[1], ir::exp(next), outer};
                         });
       }},
      {OpKind::kScan,
       "scan: in reverse",
       {{{2}}, {{3, 2}}, {{2}}},
       [](SampleIn in) {
         return ir::scan({in[0]}, {in[1]}, {.length = 3, .y_axes = {1}, .reverse = true},
                         [&](SampleIn s) {
                           const ir::Value next = ir::tanh(s[0] * s[1] + in[2]);
                           return SampleOut{next, next * s[1]};
                         });
       }},
      {OpKind::kScan,
       "scan: only the carry is used",
       {{{2}}, {{3, 2}}},
       [](SampleIn in) {
         return SampleOut{ir::scan({in[0]}, {in[1]}, {.length = 3}, [](SampleIn s) {
           return SampleOut{s[0] * s[1], ir::exp(s[0])};
         })[0]};
       }},
      {OpKind::kScan,
       "scan: only the ys are used",
       {{{2}}, {{3, 2}}},
       [](SampleIn in) {
         return SampleOut{ir::scan({in[0]}, {in[1]}, {.length = 3}, [](SampleIn s) {
           return SampleOut{s[0] * s[1], ir::exp(s[0])};
         })[1]};
       }},
      {OpKind::kScan,
       "scan: one value is the carry and a y",
       {{{2}}, {{3, 2}}},
       [](SampleIn in) {
         return ir::scan({in[0]}, {in[1]}, {.length = 3}, [](SampleIn s) {
           const ir::Value next = ir::sin(s[0] * s[1]);
           return SampleOut{next, next};
         });
       }},
      {OpKind::kScan,
       "scan: no carry",
       {{{3, 2}}},
       [](SampleIn in) {
         return ir::scan({}, in, {.length = 3},
                         [](SampleIn s) { return SampleOut{ir::exp(s[0])}; });
       }},
      {OpKind::kScan,
       "scan: an integer carry",
       {{{2}}, {{4, 2}}},
       [](SampleIn in) {
         const SampleOut out = ir::scan({in[0], s32(in, 0)}, {}, {.length = 4}, [&](SampleIn s) {
           const ir::Value row = ir::take_rows(in[1], s[1]);
           return SampleOut{ir::sin(s[0] + row), s[1] + 1.0};
         });
         return SampleOut{out[0]};
       }},
      {OpKind::kScan,
       "scan: in a scan, with values of all levels",
       {{{2}}, {{3, 2}}, {{}}},
       [](SampleIn in) {
         return ir::scan({in[0]}, {in[1]}, {.length = 3}, [&](SampleIn s) {
           const SampleOut inner =
               ir::scan({s[0]}, {s[1]}, {.length = 2, .y_axes = {0}}, [&](SampleIn t) {
                 const ir::Value next = ir::tanh(t[0] * in[2] + t[1] * s[0]);
                 return SampleOut{next, ir::sum_all(next)};
               });
           return SampleOut{inner[0], inner[1]};
         });
       }},
      {OpKind::kScan,
       "scan: gradient of an accumulated gradient",
       {{{}}, {{3}}},
       [](SampleIn in) {
         return ir::scan({ir::zeros_like(in[0])}, {in[1]}, {.length = 3}, [&](SampleIn s) {
           const ir::Value x = s[0].graph->import(in[0]);
           return SampleOut{s[0] + autodiff::grad(ir::sin(x * x * s[1]), {x})[0]};
         });
       }},
  };
}

// tanh(tanh(x w) w) with tags, and exp with a rule of its own.
inline SampleOut rematted(SampleIn in, std::vector<std::string> saved) {
  const ir::Value outer = in[1];
  return ir::remat({in[0]}, std::move(saved), [&](SampleIn a) {
    const ir::Value first = ir::checkpoint_name(ir::einsum("ij,jk->ik", a[0], outer), "dot");
    const ir::Value e = ir::checkpoint_name(custom_exp(ir::tanh(first)), "exp");
    return SampleOut{ir::tanh(ir::einsum("ij,jk->ik", e, outer)), first};
  });
}

inline GradientSample remat_sample(const std::string& name, std::vector<std::string> saved) {
  return {ir::OpKind::kRemat, "remat: " + name, {{{2, 2}}, {{2, 2}}}, [saved](SampleIn in) {
            return rematted(in, saved);
          }};
}

inline GradientSample remat_scan_sample(const std::string& name, std::vector<std::string> saved) {
  return {ir::OpKind::kRemat,
          "remat in a scan: " + name,
          {{{2, 2}}, {{3, 2, 2}}},
          [saved](SampleIn in) {
            return ir::scan({in[0]}, {in[1]}, {.length = 3, .y_axes = {1}},
                            [&](SampleIn s) { return rematted(s, saved); });
          }};
}

inline std::vector<GradientSample> structure_samples() {
  using ir::OpKind;
  std::vector<GradientSample> all = annotation_samples();
  for (GradientSample& sample : scan_samples()) all.push_back(std::move(sample));
  all.push_back(remat_sample("nothing saved", {}));
  all.push_back(remat_sample("dot saved", {"dot"}));
  all.push_back(remat_sample("the custom rule's result saved", {"exp"}));
  all.push_back(remat_sample("both saved", {"dot", "exp"}));
  all.push_back(remat_scan_sample("nothing saved", {}));
  all.push_back(remat_scan_sample("dot saved", {"dot"}));
  all.push_back(remat_scan_sample("both saved", {"dot", "exp"}));
  all.push_back({OpKind::kRemat, "a scan in remat", {{{2, 2}}, {{3, 2, 2}}}, [](SampleIn in) {
                   return ir::remat(in, {"dot"}, [](SampleIn a) {
                     return ir::scan({a[0]}, {a[1]}, {.length = 3},
                                     [](SampleIn s) { return SampleOut{rematted(s, {"dot"})[0]}; });
                   });
                 }});
  all.push_back({OpKind::kRemat, "remat in remat", {{{2, 2}}, {{2, 2}}}, [](SampleIn in) {
                   return ir::remat(in, {"exp"}, [](SampleIn a) {
                     const SampleOut y = rematted(a, {"exp", "dot"});
                     return SampleOut{ir::sin(ir::checkpoint_name(y[0], "exp"))};
                   });
                 }});
  return all;
}

// f is a gradient itself; the check differentiates it again.
inline GradientSample gradient_of(ir::OpKind kind, const std::string& name, Shape x, Shape w,
                                  std::function<SampleOut(SampleIn)> fn) {
  return {kind, "second derivative: " + name, {{std::move(x)}, {std::move(w)}}, [fn](SampleIn in) {
            ir::Value loss = ir::full(*in[0].graph, DType::kF64, {}, 0);
            for (const ir::Value& y : fn(in)) loss = loss + sum_of_squares(y);
            return autodiff::grad(loss, in);
          }};
}

inline std::vector<GradientSample> second_derivative_samples() {
  using ir::OpKind;
  return {
      gradient_of(
          OpKind::kTanh, "tanh and a product", {2, 3}, {3, 2},
          [](SampleIn in) { return SampleOut{ir::tanh(ir::einsum("ij,jk->ik", in[0], in[1]))}; }),
      gradient_of(OpKind::kReduceMax, "log of a softmax", {2, 3}, {3},
                  [](SampleIn in) {
                    const ir::Value z = in[0] * in[1];
                    const ir::Value e = ir::exp(z - ir::reduce_max(z, {1}, true));
                    return SampleOut{e / ir::reduce_sum(e, {1}, true)};
                  }),
      gradient_of(OpKind::kTakeRows, "rows", {4, 2}, {2},
                  [](SampleIn in) {
                    const ir::Value at = s32(*in[0].graph, {3}, {1, 1, 7});
                    return SampleOut{ir::sin(ir::take_rows(in[0], at) * in[1])};
                  }),
      gradient_of(OpKind::kScan, "scan", {2}, {3, 2},
                  [](SampleIn in) {
                    return ir::scan({in[0]}, {in[1]}, {.length = 3, .y_axes = {1}},
                                    [&](SampleIn s) {
                                      const ir::Value next = ir::tanh(s[0] * s[1] + in[0]);
                                      return SampleOut{next, next * s[1]};
                                    });
                  }),
      gradient_of(OpKind::kRemat, "remat", {2, 2}, {2, 2},
                  [](SampleIn in) { return rematted(in, {"dot"}); }),
      gradient_of(OpKind::kRemat, "remat in a scan", {2, 2}, {3, 2, 2},
                  [](SampleIn in) {
                    return ir::scan({in[0]}, {in[1]}, {.length = 3},
                                    [](SampleIn s) { return SampleOut{rematted(s, {"exp"})[0]}; });
                  }),
  };
}

}  // namespace mt::testing
