"""HF golden: tiny random Gemma3ForCausalLM on CPU torch, float32, eager attention. Writes config.json, model.safetensors, golden.safetensors and golden.json beside itself.
   python make_hf.py"""
import os, json, sys, numpy as np, torch, transformers
from transformers import Gemma3TextConfig, Gemma3ForCausalLM
from safetensors.torch import save_file
OUT = os.path.dirname(os.path.abspath(__file__))
import transformers.utils.import_utils as _iu; _iu.is_cuda_stream_capturing = lambda: False   # the CUDA libraries are stubs here
torch.cuda.is_current_stream_capturing = lambda: False
torch.manual_seed(0); torch.set_num_threads(1)
kw = dict(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
  hidden_activation="gelu_pytorch_tanh", max_position_embeddings=128, rms_norm_eps=1e-6, sliding_window=8, query_pre_attn_scalar=16,
  tie_word_embeddings=True, pad_token_id=0, eos_token_id=None, bos_token_id=2, attention_dropout=0.0, initializer_range=0.15, use_cache=True)
kw["layer_types"] = ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(8)]
kw["rope_parameters"] = {"full_attention": {"rope_type": "default", "rope_theta": 1000000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
cfg = Gemma3TextConfig(**kw)
cfg._attn_implementation = "eager"
m = Gemma3ForCausalLM(cfg).to(torch.float32).eval()
g = torch.Generator().manual_seed(1)
with torch.no_grad():
  for n, p in m.named_parameters():
    if "norm" in n: p.copy_(0.2 * torch.randn(p.shape, generator=g))
    if "post_attention_layernorm" in n or "post_feedforward_layernorm" in n: p.add_(1.5)   # layers outweigh the embedding, so greedy tokens vary
    if "embed_tokens" in n: p.mul_(0.4)
ids = torch.randint(1, 256, (2, 32), generator=g)
with torch.no_grad():
  logits = m(input_ids=ids, use_cache=False).logits
  prompt = ids[:, :20]
  cur = prompt.clone(); tl = []
  for _ in range(16):                       # greedy without cache, full recompute
    l = m(input_ids=cur, use_cache=False).logits[:, -1]; tl.append(l)
    cur = torch.cat([cur, l.argmax(-1, keepdim=True)], 1)
  gen = m.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False, use_cache=True, eos_token_id=None, pad_token_id=0)
labels = ids.clone(); 
out = m(input_ids=ids, labels=labels, use_cache=False); loss = float(out.loss.detach()); out.loss.backward()
gn = {n: float(p.grad.double().norm()) for n, p in m.named_parameters()}
m.save_pretrained(OUT)
top2 = torch.stack(tl).topk(2, -1).values; margin = (top2[..., 0] - top2[..., 1])
save_file({"input_ids": ids.to(torch.int32), "logits": logits.contiguous(), "greedy_prompt": prompt.to(torch.int32).contiguous(), "greedy_tokens": cur[:, 20:].to(torch.int32).contiguous(), "greedy_logits": torch.stack(tl, 1).contiguous()}, f"{OUT}/golden.safetensors")
j = {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0], "attn": cfg._attn_implementation,
  "greedy_tokens_no_cache": cur[:, 20:].tolist(), "greedy_tokens_generate_with_cache": gen[:, 20:].tolist(), "equal": bool((gen == cur).all()),
  "min_top1_top2_margin": float(margin.min()), "shifted_ce_loss_mean": loss, "grad_l2": gn, "params": {n: list(p.shape) for n, p in m.named_parameters()}}
json.dump(j, open(f"{OUT}/golden.json", "w"), indent=1)
print({k: v for k, v in j.items() if k not in ("grad_l2", "params")}); print(os.listdir(OUT)); print(open(f"{OUT}/config.json").read())
