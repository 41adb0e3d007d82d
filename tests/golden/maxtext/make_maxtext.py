"""Makes the MaxText goldens in this folder (tiny float32 gemma3). Run on CPU, one device:
   JAX_PLATFORMS=cpu python make_maxtext.py
Writes params.safetensors, batches.safetensors, outputs.safetensors, grads.safetensors, params_step1..5 (adamw_steps.safetensors), goldens.json."""
import os, sys, json, functools, copy
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import numpy as np, jax, jax.numpy as jnp, flax, optax, orbax.checkpoint as ocp
from flax import nnx
from flax.linen import partitioning as nn_partitioning
from safetensors.numpy import save_file
from maxtext.configs import pyconfig
from maxtext.trainers.pre_train import train as T
from maxtext.utils import train_utils, maxtext_utils, max_utils

import maxtext.layers.nnx_decoders as ND, maxtext.layers.embeddings as EM
ORIG_ATTEND = ND.attend_on_embedding
def attend_f32(query, embedding_table, attend_dtype, config, out_sharding=None):
  # MaxText 0.2.5's attend_on_embedding rounds the table to bfloat16 whatever dtype is (layers/embeddings.py); this one does not
  return jnp.dot(query, jnp.asarray(embedding_table, attend_dtype).T, preferred_element_type=attend_dtype)
def set_head(f32): ND.attend_on_embedding = attend_f32 if f32 else ORIG_ATTEND
OUT = os.path.dirname(os.path.abspath(__file__))
NSTEP = 5
ARGS = ["", "run_name=golden", "base_output_directory=out", "hardware=cpu", "skip_jax_distributed_system=True",
  "enable_checkpointing=false", "model_name=gemma3-4b", "override_model_config=True", "base_num_decoder_layers=8",
  "base_emb_dim=64", "base_num_query_heads=4", "base_num_kv_heads=2", "head_dim=16", "base_mlp_dim=128", "vocab_size=256",
  "max_target_length=32", "sliding_window_size=8", "per_device_batch_size=2", "dtype=float32", "weight_dtype=float32",
  "attention=dot_product", "steps=10", "dataset_type=synthetic", "log_config=false"]

def build(scan):
  cfg = pyconfig.initialize(ARGS + [f"scan_layers={scan}"])
  r = train_utils.setup_train_loop(cfg, None)
  init_rng, ckm, shardings, model, mesh, lrs, dit, dl, ramp, edit, state = r
  return cfg, mesh, lrs, state, shardings, dit

def flat(params):  # nnx.State of Params -> {name: np array}
  out = {}
  for path, v in nnx.to_flat_state(params):
    v = v.get_value() if hasattr(v, "get_value") else (v.value if hasattr(v, "value") else v)
    out[".".join(str(p) for p in path)] = np.asarray(v)
  return out

def setflat(params, d):
  for path, v in nnx.to_flat_state(params):
    k = ".".join(str(p) for p in path)
    a = jnp.asarray(d[k]); assert a.shape == v.get_value().shape, (k, a.shape, v.get_value().shape)
    v.set_value(a) if hasattr(v, "set_value") else setattr(v, "value", a)
  return params

def unscan(d, L=8, pat=6):
  """scanned names -> unscanned names ('decoder.layers_{i}...'); stacked axis is 1 (param_scan_axis)"""
  nb = L // pat; out = {}
  for k, a in d.items():
    if k.startswith("decoder.layers.layers_"):
      j, rest = k[len("decoder.layers.layers_"):].split(".", 1)
      ax = 1 if a.ndim > 1 else 0
      for b in range(nb): out[f"decoder.layers_{b*pat+int(j)}.{rest}"] = np.take(a, b, axis=ax)
    elif k.startswith("decoder.layers_remainder.layers_"):
      j, rest = k[len("decoder.layers_remainder.layers_"):].split(".", 1)
      out[f"decoder.layers_{nb*pat+int(j)}.{rest}"] = a
    else: out[k] = a
  return out

def make_batches(cfg, dit, mesh):
  syn = {k: np.asarray(v) for k, v in next(dit).items()}
  rng = np.random.default_rng(7)
  S, B = 32, 2
  tok = rng.integers(0, 256, (B, S + 1)).astype(np.int32)
  pk = {"inputs": tok[:, :-1].copy(), "targets": tok[:, 1:].copy()}
  seg = np.ones((B, S), np.int32); pos = np.tile(np.arange(S, dtype=np.int32), (B, 1))
  seg[1, :12] = 1; seg[1, 12:27] = 2; seg[1, 27:] = 0            # row 1: segments of 12 and 15 tokens, 5 of padding
  pos[1, :12] = np.arange(12); pos[1, 12:27] = np.arange(15); pos[1, 27:] = 0
  tseg = seg.copy(); tseg[1, 11] = 0; tseg[1, 26] = 0             # no target across a segment's end
  pk["inputs"][1, 27:] = 0; pk["targets"][1, 27:] = 0; pk["targets"][1, 11] = 0; pk["targets"][1, 26] = 0
  pk["inputs_segmentation"] = seg; pk["targets_segmentation"] = tseg
  pk["inputs_position"] = pos; pk["targets_position"] = pos.copy()
  return {"synthetic": syn, "packed": pk}

def run(scan, init, batches):
  cfg, mesh, lrs, state, shardings, dit = build(scan)
  if batches is None: batches = make_batches(cfg, dit, mesh)
  with jax.set_mesh(mesh), nn_partitioning.axis_rules(cfg.logical_axis_rules):
    p = nnx.state(state.model, nnx.Param)
    if init is None:
      d = flat(p); rng = np.random.default_rng(3)
      for k in sorted(d):                                        # norm scales are all 1 at init: move them off 1
        if k.endswith("scale"): d[k] = (1 + 0.2 * rng.standard_normal(d[k].shape)).astype(np.float32)
      init = d
    setflat(p, init); nnx.update(state.model, p)
    res = {"init": flat(nnx.state(state.model, nnx.Param)), "cfg": cfg, "lrs": lrs, "batches": batches}
    def J(b): return {k: jnp.asarray(v) for k, v in b.items()}
    graphdef, params, rest = nnx.split(state.model, nnx.Param, ...)
    def fwd(params, rest, b):
      m = nnx.merge(graphdef, params, rest, copy=True)
      return m(decoder_input_tokens=b["inputs"], decoder_positions=b["inputs_position"], decoder_segment_ids=b["inputs_segmentation"],
               enable_dropout=False, decoder_target_tokens=b["targets"], decoder_target_mask=b["targets_segmentation"])
    def lossf(params, rest, b):
      m = nnx.merge(graphdef, params, rest, copy=True)
      l, aux = T.loss_fn(m, cfg, dict(b), None, None, is_train=True)
      return l, {"xent_sum": aux["xent_sum"], "total_weights": aux["total_weights"]}
    for n, b in batches.items():
      res[n + ".logits"] = np.asarray(jax.jit(fwd)(params, rest, J(b)))
      (l, aux), g = jax.jit(jax.value_and_grad(lossf, has_aux=True))(params, rest, J(b))
      res[n + ".loss"] = float(l); res[n + ".aux"] = {k: float(v) for k, v in aux.items()}
      res[n + ".grads"] = flat(g)
    # AdamW steps with MaxText's own train_step on the packed batch
    gd, st = nnx.split(state)
    pshard, sshard = T.sharding.maybe_update_params_sharding_with_opt(cfg, shardings)
    step = jax.jit(functools.partial(T.train_step, gd, cfg, sshard, pshard))
    res["steps"] = []
    for i in range(NSTEP):
      st, m = step(st, J(batches["packed"]))
      s = {k: float(v) for k, v in m["scalar"].items()}
      full = nnx.merge(gd, st)
      res["steps"].append((s, flat(nnx.state(full.model, nnx.Param))))
  return res

def main():
  set_head(True)                                   # the float32 goldens: tied output head in true float32
  a = run(True, None, None)
  b = run(False, unscan(a["init"]), a["batches"])
  set_head(False)                                  # MaxText exactly as shipped
  c = run(True, a["init"], a["batches"])
  def diff(x, y): return max(float(np.max(np.abs(x[k] - y[k]))) for k in x)
  cmp = {}
  for n in ("synthetic", "packed"):
    cmp[n] = {"max_abs_logit_diff": float(np.max(np.abs(a[n + ".logits"] - b[n + ".logits"]))), "loss_scan": a[n + ".loss"], "loss_unscan": b[n + ".loss"],
              "max_abs_grad_diff": diff(unscan(a[n + ".grads"]), b[n + ".grads"])}
  cmp["adamw_max_abs_param_diff_per_step"] = [diff(unscan(x[1]), y[1]) for x, y in zip(a["steps"], b["steps"])]
  cmp["adamw_loss_unscan"] = [y[0]["learning/loss"] for y in b["steps"]]
  C = np.ascontiguousarray
  save_file({k: C(v) for k, v in a["init"].items()}, f"{OUT}/params.safetensors")
  save_file({f"{n}.{k}": C(v.astype(np.int32)) for n, bb in a["batches"].items() for k, v in bb.items()}, f"{OUT}/batches.safetensors")
  save_file({f"{n}.logits": C(a[n + ".logits"]) for n in a["batches"]}, f"{OUT}/logits.safetensors")
  save_file({k: C(v) for k, v in a["packed.grads"].items()}, f"{OUT}/grads_packed.safetensors")
  save_file({f"step{i+1}.{k}": C(v) for i, (s, p) in enumerate(a["steps"]) if i > 0 for k, v in p.items()}, f"{OUT}/adamw_steps.safetensors")
  assert all(np.array_equal(v, a["init"][k]) for k, v in a["steps"][0][1].items()), "step 1 has lr 0 and must leave the parameters alone"
  save_file({**{f"{n}.logits": C(c[n + ".logits"]) for n in c["batches"]}, "packed.grad.token_embedder.embedding": C(c["packed.grads"]["token_embedder.embedding"])}, f"{OUT}/asis_bf16head.safetensors")
  cfg = a["cfg"]; keys = ["learning_rate","learning_rate_final_fraction","warmup_steps_fraction","learning_rate_schedule_steps","steps","lr_schedule_type","adam_b1","adam_b2","adam_eps","adam_eps_root","adam_weight_decay","adamw_mask","mu_dtype","grad_dtype","gradient_clipping_threshold","opt_type","rope_max_timescale","local_rope_max_timescale","rope_linear_scaling_factor","rope_min_timescale","sliding_window_size","normalize_embedding_logits","logits_via_embedding","cast_logits_to_fp32","use_post_attn_norm","use_post_ffw_norm","mlp_activations","normalization_layer_epsilon","param_scan_axis","matmul_precision","dtype","weight_dtype","num_decoder_layers","emb_dim","mlp_dim","num_query_heads","num_kv_heads","head_dim","vocab_size","remat_policy","z_loss_multiplier","max_segments_per_seq","packing","attention","enable_dropout","dropout_rate"]
  import types as _t
  lrs = {}
  for n in (1, 5, 10, 20, 30, 100):
    c2 = _t.SimpleNamespace(learning_rate=cfg.learning_rate, learning_rate_final_fraction=cfg.learning_rate_final_fraction, warmup_steps_fraction=cfg.warmup_steps_fraction, learning_rate_schedule_steps=n, steps=n, lr_schedule_type=cfg.lr_schedule_type, wsd_decay_steps_fraction=cfg.wsd_decay_steps_fraction, wsd_decay_style=cfg.wsd_decay_style)
    f = maxtext_utils.create_learning_rate_schedule(c2); lrs[n] = [float(f(i)) for i in range(n)]
  j = {"versions": {"maxtext": "0.2.5", "jax": jax.__version__, "flax": flax.__version__, "optax": optax.__version__, "orbax": ocp.__version__, "numpy": np.__version__, "python": sys.version.split()[0]},
       "args": ARGS[1:], "config": {k: str(getattr(cfg, k, "n/a")) for k in keys},
       "params_scan_true": {k: {"shape": list(v.shape), "dtype": str(v.dtype)} for k, v in a["init"].items()},
       "params_scan_false": {k: {"shape": list(v.shape), "dtype": str(v.dtype)} for k, v in b["init"].items()},
       "loss": {n: {"loss": a[n + ".loss"], **a[n + ".aux"], "raw_grad_l2": float(np.sqrt(sum(float(np.sum(g.astype(np.float64) ** 2)) for g in a[n + ".grads"].values())))} for n in a["batches"]},
       "grad_l2_per_param_synthetic": {k: float(np.linalg.norm(v.astype(np.float64))) for k, v in a["synthetic.grads"].items()},
       "adamw_steps": [dict(step=i, lr=float(a["lrs"](i)), **s) for i, (s, p) in enumerate(a["steps"])],
       "lr_schedule_by_steps": lrs, "asis_bf16head": {"loss": {n: c[n + ".loss"] for n in c["batches"]}, "max_abs_logit_diff_to_f32head": {n: float(np.abs(c[n + ".logits"] - a[n + ".logits"]).max()) for n in c["batches"]},
          "max_abs_grad_diff_to_f32head_packed": {k: float(np.abs(v - a["packed.grads"][k]).max()) for k, v in c["packed.grads"].items()}, "grad_l2_packed": {k: float(np.linalg.norm(v.astype(np.float64))) for k, v in c["packed.grads"].items()},
          "adamw_loss": [s["learning/loss"] for s, p in c["steps"]], "adamw_raw_grad_norm": [s["learning/raw_grad_norm"] for s, p in c["steps"]],
          "adamw_max_abs_param_diff_to_f32head": [diff(x[1], y[1]) for x, y in zip(a["steps"], c["steps"])]},
       "scan_true_vs_false": cmp}
  json.dump(j, open(f"{OUT}/goldens.json", "w"), indent=1)
  print(json.dumps({"asis": {k: v for k, v in j["asis_bf16head"].items() if "grad_l2" not in k and "grad_diff" not in k}, "cmp": cmp, "loss": j["loss"], "adamw": j["adamw_steps"], "lr10": lrs[10]}, indent=1))
main()
