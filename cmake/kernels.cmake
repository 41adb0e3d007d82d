# Each instruction set of src/kernels has a file of its own, compiled for it and called only where
# the processor has it. Products and sums are fused only where the code says so: dequantised values
# are defined to the last bit.
set(sets avx2 avx_vnni avx512 avx512_packed)
set(avx2 -mavx2 -mfma -mf16c)
set(avx_vnni ${avx2} -mavxvnni)
# g++ 12 warns of the undefined registers in its own AVX-512 header.
set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -Wno-uninitialized)
set(avx512_packed ${avx512})
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/scalar.cc PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
foreach(set ${sets})
  set(source ${CMAKE_SOURCE_DIR}/src/kernels/${set}.cc)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${${set}};-ffp-contract=off")
  else()
    set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endforeach()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/instruction_set.cc
                              PROPERTIES COMPILE_DEFINITIONS MT_KERNELS_X86)
endif()
