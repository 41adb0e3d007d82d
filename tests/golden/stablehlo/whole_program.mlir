module @jit_whole attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["fsdp"=2, "tensor"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}, %arg1: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, %arg2: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>, tf.aliasing_output = 0 : i32}, %arg3: tensor<8xi32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) -> (tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}, tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}, tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
    %0 = "stablehlo.gather"(%arg2, %arg3) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>} : (tensor<16x4xf32>, tensor<8xi32>) -> (tensor<8x4xf32>)
    %1 = "stablehlo.add"(%arg0, %0) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>)
    %2 = sdy.sharding_constraint %1 <@mesh, [{"fsdp"}, {"tensor"}]> : tensor<8x4xf32>
    %3 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> (tensor<i32>)
    %4 = "stablehlo.constant"() {value = dense<0.00000000000000000e+00> : tensor<8x4xf32>} : () -> (tensor<8x4xf32>)
    %5:5 = "stablehlo.while"(%3, %2, %4, %arg1, %0) ({
      ^bb0(%6: tensor<i32>, %7: tensor<8x4xf32>, %8: tensor<8x4xf32>, %9: tensor<4x4xf32>, %10: tensor<8x4xf32>):
        %11 = "stablehlo.constant"() {value = dense<4> : tensor<i32>} : () -> (tensor<i32>)
        %12 = "stablehlo.compare"(%6, %11) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> (tensor<i1>)
        "stablehlo.return"(%12) : (tensor<i1>) -> ()
    }, {
      ^bb0(%13: tensor<i32>, %14: tensor<8x4xf32>, %15: tensor<8x4xf32>, %16: tensor<4x4xf32>, %17: tensor<8x4xf32>):
        %18 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> (tensor<i32>)
        %19 = "stablehlo.dynamic_slice"(%16, %13, %18) {slice_sizes = array<i64: 1, 4>} : (tensor<4x4xf32>, tensor<i32>, tensor<i32>) -> (tensor<1x4xf32>)
        %20 = "stablehlo.reshape"(%19) : (tensor<1x4xf32>) -> (tensor<4xf32>)
        %21 = "stablehlo.broadcast_in_dim"(%20) {broadcast_dimensions = array<i64: 1>} : (tensor<4xf32>) -> (tensor<8x4xf32>)
        %22 = "stablehlo.multiply"(%14, %21) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>)
        %23 = "stablehlo.tanh"(%22) : (tensor<8x4xf32>) -> (tensor<8x4xf32>)
        %24 = "stablehlo.add"(%23, %17) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>)
        %25 = "stablehlo.constant"() {value = dense<0.00000000000000000e+00> : tensor<f32>} : () -> (tensor<f32>)
        %29 = "stablehlo.reduce"(%24, %25) ({ ^bb0(%26: tensor<f32>, %27: tensor<f32>): %28 = "stablehlo.add"(%26, %27) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%28) : (tensor<f32>) -> () }) {dimensions = array<i64: 1>} : (tensor<8x4xf32>, tensor<f32>) -> (tensor<8xf32>)
        %30 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> (tensor<i32>)
        %31 = "stablehlo.add"(%13, %30) : (tensor<i32>, tensor<i32>) -> (tensor<i32>)
        %32 = "stablehlo.reshape"(%29) : (tensor<8xf32>) -> (tensor<8x1xf32>)
        %33 = "stablehlo.dynamic_update_slice"(%15, %32, %18, %13) : (tensor<8x4xf32>, tensor<8x1xf32>, tensor<i32>, tensor<i32>) -> (tensor<8x4xf32>)
        "stablehlo.return"(%31, %24, %33, %16, %17) : (tensor<i32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> ()
    }) : (tensor<i32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>) -> (tensor<i32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x4xf32>)
    %34 = "stablehlo.constant"() {value = dense<0> : tensor<i32>} : () -> (tensor<i32>)
    %35:2 = "stablehlo.while"(%5#1, %34) ({
      ^bb0(%36: tensor<8x4xf32>, %37: tensor<i32>):
        %38 = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> (tensor<i32>)
        %39 = "stablehlo.compare"(%37, %38) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> (tensor<i1>)
        "stablehlo.return"(%39) : (tensor<i1>) -> ()
    }, {
      ^bb0(%40: tensor<8x4xf32>, %41: tensor<i32>):
        %42 = "stablehlo.constant"() {value = dense<5.00000000000000000e-01> : tensor<f32>} : () -> (tensor<f32>)
        %43 = "stablehlo.broadcast_in_dim"(%42) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> (tensor<8x4xf32>)
        %44 = "stablehlo.multiply"(%40, %43) : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x4xf32>)
        %45 = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> (tensor<i32>)
        %46 = "stablehlo.add"(%41, %45) : (tensor<i32>, tensor<i32>) -> (tensor<i32>)
        "stablehlo.return"(%44, %46) : (tensor<8x4xf32>, tensor<i32>) -> ()
    }) : (tensor<8x4xf32>, tensor<i32>) -> (tensor<8x4xf32>, tensor<i32>)
    %48 = sdy.manual_computation(%35#0) in_shardings=[<@mesh, [{"fsdp"}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={"fsdp"} (%47: tensor<4x4xf32>) {
      %49 = "stablehlo.constant"() {value = dense<0.00000000000000000e+00> : tensor<f32>} : () -> (tensor<f32>)
      %53 = "stablehlo.reduce"(%47, %49) ({ ^bb0(%50: tensor<f32>, %51: tensor<f32>): %52 = "stablehlo.add"(%50, %51) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%52) : (tensor<f32>) -> () }) {dimensions = array<i64: 0>} : (tensor<4x4xf32>, tensor<f32>) -> (tensor<4xf32>)
      %54 = "stablehlo.reshape"(%53) : (tensor<4xf32>) -> (tensor<1x4xf32>)
      %58 = "stablehlo.all_reduce"(%54) ({ ^bb0(%55: tensor<f32>, %56: tensor<f32>): %57 = "stablehlo.add"(%55, %56) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%57) : (tensor<f32>) -> () }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<1x4xf32>) -> (tensor<1x4xf32>)
      "sdy.return"(%58) : (tensor<1x4xf32>) -> ()
    } : (tensor<8x4xf32>) -> (tensor<1x4xf32>)
    %59 = "stablehlo.broadcast_in_dim"(%48) {broadcast_dimensions = array<i64: 0, 1>} : (tensor<1x4xf32>) -> (tensor<8x4xf32>)
    %63 = "stablehlo.scatter"(%arg2, %arg3, %59) ({ ^bb0(%60: tensor<f32>, %61: tensor<f32>): %62 = "stablehlo.add"(%60, %61) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%62) : (tensor<f32>) -> () }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} : (tensor<16x4xf32>, tensor<8xi32>, tensor<8x4xf32>) -> (tensor<16x4xf32>)
    %64:2 = "stablehlo.optimization_barrier"(%63, %5#2) : (tensor<16x4xf32>, tensor<8x4xf32>) -> (tensor<16x4xf32>, tensor<8x4xf32>)
    %65 = "stablehlo.constant"() {value = dense<0xFF800000> : tensor<f32>} : () -> (tensor<f32>)
    %69 = "stablehlo.reduce"(%arg0, %65) ({ ^bb0(%66: tensor<f32>, %67: tensor<f32>): %68 = "stablehlo.maximum"(%66, %67) : (tensor<f32>, tensor<f32>) -> tensor<f32> "stablehlo.return"(%68) : (tensor<f32>) -> () }) {dimensions = array<i64: 0>} : (tensor<8x4xf32>, tensor<f32>) -> (tensor<4xf32>)
    "func.return"(%63, %64#1, %69) : (tensor<16x4xf32>, tensor<8x4xf32>, tensor<4xf32>) -> ()
  }
}
