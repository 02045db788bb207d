// Calls everything that sterna.hpp offers, and says what is wrong.
#include <sterna.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>

namespace {

int faults = 0;

void check(bool is_right, const char *what, int line) {
    if (is_right) return;
    std::cout << "line " << line << ": " << what << '\n';
    faults++;
}

#define CHECK(condition) check(condition, #condition, __LINE__)

// The status that a call throws.
template <typename Call>
sterna::status thrown(Call &&call) {
    try {
        call();
    } catch (const sterna::error &error) {
        CHECK(*error.what() != '\0');
        return error.status();
    }
    return sterna::status::success;
}

int blocks = 0;

void *give(std::size_t size, std::size_t alignment) {
    blocks++;
    return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void take(void *block) {
    blocks--;
    std::free(block);
}

using sterna::data_type;
using sterna::logical_tensor;
using sterna::op;
using sterna::op_attr;
using sterna::op_kind;
using sterna::status;
using sterna::tensor;

const logical_tensor cond(0, data_type::boolean, {2, 3}), then(1, data_type::f32, {2, 3}),
        otherwise(2, data_type::f32, {2, 3}), dst(3, data_type::f32, {2, 3});

sterna::graph select_graph() {
    sterna::graph graph;
    op select(7, op_kind::select, {cond, then, otherwise}, {dst});
    select.attr(op_attr::auto_broadcast, "numpy");
    graph.add(select).finalize();
    return graph;
}

void process() {
    CHECK(sterna::version().major == std::atoi(sterna::version_string().data()));
    CHECK(sterna::name(status::invalid_shape) == std::string("invalid_shape"));
    CHECK(sterna::name(data_type::bf16) == std::string("bf16"));
    CHECK(sterna::name(op_kind::gen_index) == std::string("GenIndex"));
    CHECK(sterna::name(sterna::level::avx2) == std::string("avx2"));
    CHECK(sterna::name(sterna::accuracy::ordered) == std::string("ordered"));
    CHECK(sterna::name(sterna::phase_kind::gemm) == std::string("gemm"));
    CHECK(sterna::name(sterna::fast_form::decode) == std::string("decode"));
    CHECK(sterna::name(sterna::fallback_reason::softmax_axis) == std::string("softmax_axis"));
    CHECK(sterna::size_of(data_type::s64) == 8);

    sterna::set_max_cpu_isa(sterna::cpu_isa::default_);
    CHECK(sterna::effective_cpu_isa() != sterna::cpu_isa::avx2_vnni_2);
    CHECK(thrown([] { sterna::set_max_cpu_isa(sterna::cpu_isa::avx2); }) == status::invalid_arguments);

    sterna::set_verbose(0);
    sterna::set_dump_mode(sterna::dump_mode::none);
    CHECK(thrown([] { sterna::set_verbose(9); }) == status::invalid_arguments);

    sterna::set_default_fpmath_mode(sterna::fpmath_mode::bf16);
    CHECK(sterna::default_fpmath_mode() == sterna::fpmath_mode::bf16);
    CHECK(sterna::graph().get_fpmath_mode().mode == sterna::fpmath_mode::bf16);
    sterna::set_default_fpmath_mode(sterna::fpmath_mode::strict);

    sterna::set_compiled_partition_cache_capacity(5);
    CHECK(sterna::compiled_partition_cache_capacity() == 5);
    sterna::set_constant_tensor_cache(true);
    CHECK(sterna::constant_tensor_cache());
    sterna::set_constant_tensor_cache_capacity(12);
    CHECK(sterna::constant_tensor_cache_capacity() == 12);
    CHECK((sterna::dump_mode::graph | sterna::dump_mode::subgraph) == static_cast<sterna::dump_mode>(3));
}

void descriptions() {
    CHECK(then.id() == 1 && then.type() == data_type::f32 && then.ndims() == 2);
    CHECK(then.layout() == sterna::layout_type::strided && then.prop() == sterna::property::undef);
    CHECK(then.dims().size() == 2 && then.dims()[1] == 3 && then.strides()[0] == 3);
    CHECK(then.memory_size() == 24);
    CHECK(logical_tensor(*then.get()) == then && then != dst);
    const auto columns = logical_tensor::strided(1, data_type::f32, {2, 3}, {1, 2});
    CHECK(columns != then && columns.strides()[1] == 2);
    CHECK(thrown([] { logical_tensor::strided(1, data_type::f32, {2, 3}, {1}); }) == status::invalid_arguments);
    CHECK(logical_tensor(1, data_type::f32, {}).ndims() == 0);
    CHECK(logical_tensor::unknown(1, data_type::f32).dims().empty());
    CHECK(logical_tensor::unknown(1, data_type::f32, 2).dims()[1] == sterna::unknown_dim);
    const std::vector<std::int64_t> many(13, 1);
    CHECK(thrown([&] { logical_tensor(1, data_type::f32, many); }) == status::invalid_arguments);
    CHECK(thrown([] { logical_tensor::host_scalar(1, data_type::f16); }) == status::invalid_arguments);

    op clamp(4, op_kind::clamp, "limit");
    clamp.input(then).output(dst).attr(op_attr::min, -1.0f).attr(op_attr::max, 1.0);
    CHECK(clamp.id() == 4 && clamp.kind() == op_kind::clamp);
    op mean(5, op_kind::reduce_mean, {then}, {dst});
    const std::vector<std::int64_t> axes {0};
    mean.attr(op_attr::axes, {1}).attr(op_attr::axes, axes).attr(op_attr::keep_dims, true);
    op quantize(6, op_kind::quantize, {then}, {logical_tensor(9, data_type::u8, {2, 3})});
    const std::vector<float> scales {0.5f};
    quantize.attr(op_attr::scales, scales).attr(op_attr::axis, 1).attr(op_attr::qtype, std::string("per_tensor"));
    quantize.attr(op_attr::zps, {3}).attr(op_attr::scales, {0.25f});
    sterna::graph graph;
    graph.add(quantize);
    CHECK(thrown([&] { graph.add(op(8, op_kind::select)); }) == status::invalid_graph_op);
    CHECK(thrown([&] { mean.attr(static_cast<op_attr>(9999), 1); }) == status::invalid_arguments);
}

void graphs() {
    auto graph = select_graph();
    CHECK(graph.is_finalized());
    CHECK(thrown([&] { graph.set_fpmath_mode(sterna::fpmath_mode::any); }) == status::invalid_graph);
    CHECK(graph.partitions(sterna::partition_policy::debug).size() == 1);
    CHECK(thrown([&] { graph.explain(99); }) == status::invalid_arguments);
    graph.explain(7);
    auto copy = sterna::graph::from_json(graph.to_json());
    CHECK(!copy.is_finalized() && copy.json_notes().empty());
    const auto noted = sterna::graph::from_json(
            R"({"graph": [{"id": 0, "kind": "Abs", "inputs": [{"id": 0, "dtype": "f32"}],
                                  "outputs": [{"id": 1, "dtype": "f32", "shape": [2]}]},
                          {"id": 1, "kind": "Abs", "inputs": [{"id": 1, "dtype": "f32", "shape": [3]}],
                                  "outputs": [{"id": 2, "dtype": "f32"}]}]})");
    CHECK(noted.json_notes().find("dims {3} differ from {2} of its producer") != std::string::npos);
    copy.set_fpmath_mode(sterna::fpmath_mode::any, true);
    CHECK(copy.get_fpmath_mode().apply_to_int);
    copy.set_rewrite("rms-norm", false);
    CHECK(thrown([&] { copy.set_rewrite("rms_norm", false); }) == status::invalid_arguments);
    copy.finalize();
    CHECK(copy.partitions().at(0).ops() == std::vector<std::size_t> {7});
    CHECK(thrown([] { sterna::graph::from_json("{"); }) == status::invalid_arguments);
    CHECK(sterna::graph(sterna::fpmath_mode::tf32).get_fpmath_mode().mode == sterna::fpmath_mode::tf32);

    const auto partitions = graph.partitions();
    const auto &select = partitions.at(0);
    CHECK(select.id() == 0 && select.is_supported() && !select.unsupported_reason());
    CHECK(select.engine_kind() == sterna::engine_kind::cpu);
    CHECK(select.accuracy() == sterna::accuracy::exact);
    CHECK(select.inputs().size() == 3 && select.outputs().at(0) == dst);
    const sterna::partition odd(op(1, op_kind::wildcard, {then}, {dst}));
    CHECK(!odd.is_supported() && odd.unsupported_reason()->size() > 10);
    CHECK(thrown([&] { odd.accuracy(); }) == status::invalid_arguments);
    CHECK(thrown([&] { odd.compile(sterna::engine()); }) == status::invalid_arguments);
}

void attentions() {
    const auto tensor = [](std::size_t id, std::vector<std::int64_t> dims, data_type type = data_type::f32) {
        return logical_tensor(id, type, dims);
    };
    const auto q = tensor(0, {1, 4, 6, 8}), k = tensor(1, {1, 2, 6, 8}), v = tensor(2, {1, 2, 6, 8});
    const auto out = tensor(3, {1, 4, 6, 8});
    const auto plain = [&] { return sterna::attention(q, k, v, out, 10, 100).groups(2); };
    sterna::graph graph;
    const auto ids = graph.add(plain());
    CHECK(ids.ops > 4 && ids.tensors > ids.ops - 2);
    graph.finalize();
    CHECK(graph.partitions(sterna::partition_policy::debug).size() == ids.ops);

    sterna::graph full;
    const auto more = full.add(plain()
                                       .scale(0.5f)
                                       .softcap(30)
                                       .window(3)
                                       .bias(tensor(4, {6, 6}))
                                       .mask(tensor(5, {1, 1, 1, 6}, data_type::boolean), sterna::mask_true::masks)
                                       .causal(tensor(6, {}, data_type::s32))
                                       .stats(tensor(7, {1, 4, 6, 1}))
                                       .sinks(tensor(8, {4, 1, 1}))
                                       .score_type(data_type::f32)
                                       .nan_without_keys(true));
    CHECK(more.ops > ids.ops);
    const auto sequences = [&](std::size_t id) { return tensor(id, {3}, data_type::s32); };
    const auto packed = full.add(sterna::attention(tensor(20, {4, 6, 8}), tensor(21, {4, 6, 8}), tensor(22, {4, 6, 8}),
                                                   tensor(23, {4, 6, 8}), 300, 3000)
                                         .packed(sequences(24), sequences(25))
                                         .alibi(tensor(26, {4, 1, 1}))
                                         .nan_without_keys(true));
    CHECK(packed.ops > 20);
    const auto cache = [&](std::size_t id) { return tensor(id, {9, 4, 16, 8}); };
    const auto paged = full.add(sterna::attention(tensor(30, {2, 4, 1, 8}), cache(31), cache(32), tensor(33, {2, 4, 1, 8}),
                                                  600, 6000)
                                        .paged(tensor(34, {2, 3}, data_type::s32), tensor(35, {2}, data_type::s32))
                                        .causal(sterna::causal::bottom_right)
                                        .nan_without_keys(true));
    CHECK(paged.ops > 5);
    const auto small = [&](std::size_t id) { return tensor(id, {9, 4, 16, 8}, data_type::u4); };
    const auto scales = [&](std::size_t id, data_type type = data_type::f32) { return tensor(id, {9, 4, 16, 2}, type); };
    const auto dequantized = full.add(sterna::attention(tensor(40, {2, 4, 1, 8}), small(41), small(42),
                                                        tensor(43, {2, 4, 1, 8}), 900, 9000)
                                              .paged(tensor(44, {2, 3}, data_type::s32), tensor(45, {2}, data_type::s32))
                                              .quantized_keys(scales(46), scales(47, data_type::u8))
                                              .quantized_values(scales(48))
                                              .causal(sterna::causal::bottom_right)
                                              .nan_without_keys(true));
    CHECK(dequantized.ops == paged.ops + 5);
    const auto json = full.to_json();
    CHECK(json.find("CumSum") != std::string::npos && json.find("Tanh") != std::string::npos && json.find("inf_as_zero") == std::string::npos);

    const auto answer = [&](sterna::attention attention) {
        return thrown([&] { sterna::graph().add(attention); });
    };
    CHECK(answer(plain().causal(sterna::causal::top_left)) == status::success);
    CHECK(answer(plain().causal(sterna::causal::bottom_right)) == status::success);
    CHECK(answer(plain().groups(3)) == status::invalid_arguments);
    CHECK(answer(plain().quantized_keys(tensor(4, {1, 2, 6, 1}))) == status::invalid_arguments);
    CHECK(answer(plain().quantized_values(tensor(4, {1, 2, 6, 1}), tensor(5, {1, 2, 6, 1}, data_type::u8)))
            == status::invalid_arguments);
    CHECK(answer(plain().window(-1)) == status::invalid_arguments);
    CHECK(answer(plain().mask(tensor(5, {6}))) == status::invalid_arguments);
    CHECK(answer(sterna::attention(q, tensor(1, {1, 4, 8, 6}), tensor(2, {1, 4, 6, 8}), out, 10, 100).k_transposed(true))
            == status::success);
    CHECK(thrown([&] { graph.add(plain()); }) == status::invalid_graph);

    const auto d_out = tensor(8, {1, 4, 6, 8});
    sterna::attention_backward backward(plain().causal(sterna::causal::top_left), d_out);
    CHECK(thrown([&] { sterna::graph().add(backward); }) == status::invalid_arguments);
    sterna::graph gradients;
    backward.d_q(tensor(9, {1, 4, 6, 8})).d_k(tensor(10, {1, 2, 6, 8})).d_v(tensor(11, {1, 2, 6, 8}));
    CHECK(gradients.add(backward).ops > ids.ops);
    gradients.finalize();
    CHECK(gradients.partitions().size() == 1);
}

void executions() {
    {
        const sterna::allocator memory(give, take);
        const sterna::allocator of_system;
        using options = sterna::engine_options;
        const sterna::engine engine(options().allocator(memory)), two(options().threads(2).allocator(memory)),
                plain(options().allocator(of_system));
        CHECK(engine.kind() == sterna::engine_kind::cpu && two.threads() <= 2);
        CHECK(sterna::engine(options().threads(2).sleep_at_once(true)).threads() == two.threads());
        CHECK(engine.level() == plain.level());
        CHECK(sterna::engine::count(sterna::engine_kind::gpu) == 0);
        CHECK(thrown([] { sterna::engine {sterna::engine_kind::gpu}; }) == status::invalid_arguments);

        const sterna::stream stream(two, sterna::stream_flags::in_order | sterna::stream_flags::out_of_order);
        CHECK(stream.engine() == two && stream.engine() != engine);
        const auto compiled = select_graph().partitions().at(0).compile({cond, then, otherwise}, {dst}, two);
        CHECK(compiled.query(3) == dst);
        CHECK(compiled.bytes_moved() == 6 * 13 && compiled.flops() == 0 && compiled.buffer_bytes() == 0);
        const auto phases = compiled.phases();
        CHECK(phases.size() == 1 && phases[0].kind == sterna::phase_kind::map && phases[0].tasks == 1);
        CHECK(compiled.fallbacks().empty());
        CHECK(phases[0].flops == 0 && phases[0].scratch == compiled.scratch_per_thread());
        CHECK(compiled.plan().find("phase    map: 0 FLOPs") != std::string::npos);
        CHECK(compiled.inplace_ports().size() == 2 && compiled.inplace_ports()[0].output_id == 3);

        std::uint8_t conditions[] = {1, 0, 0, 1, 1, 0};
        std::vector<float> left {1, 2, 3, 4, 5, 6}, right {-1, -2, -3, -4, -5, -6};
        const std::vector<float> expected {1, -2, -3, 4, 5, -6};
        std::vector<tensor> inputs;
        inputs.emplace_back(cond, two, conditions);
        inputs.emplace_back(then, two, left);
        inputs.emplace_back(otherwise, two, sterna::view<float>(right.data(), right.size()));
        const tensor own(dst, two);
        CHECK(blocks > 0);
        compiled.execute(stream, inputs, {own});
        stream.wait();
        const auto *result = static_cast<const float *>(own.data());
        CHECK(std::vector<float>(result, result + 6) == expected);
        CHECK(own.desc() == dst && own.engine() == sterna::engine_ref(two));

        CHECK(compiled.engine() == sterna::engine_ref(two));
        CHECK(compiled.query_logical_tensor(3) == dst && compiled.query_logical_tensor("dst") == dst);
        CHECK(thrown([&] { compiled.query_logical_tensor("dest"); }) == status::invalid_arguments);
        std::vector<float> again(6);
        const std::vector<std::uint8_t> constants(conditions, conditions + 6);
        compiled.run({compiled.tensor("cond", constants), compiled.tensor(1, left), compiled.tensor("else", right)},
                {compiled.tensor("dst", again)});
        CHECK(again == expected);
        const auto constant = tensor::on_constant(dst, two, expected.data());
        CHECK(thrown([&] { compiled.execute(stream, inputs, {constant}); }) == status::invalid_arguments);
        CHECK(thrown([&] { compiled.execute(stream, inputs, {tensor(dst, two, expected)}); })
                == status::invalid_arguments);

        tensor late(dst, two, nullptr);
        CHECK(thrown([&] { compiled.execute(stream, inputs, {late}); }) == status::invalid_arguments);
        late.set_data(left.data());
        const tensor scratch(compiled.scratchpad(), two);
        compiled.execute(stream, inputs, {late}, scratch);
        CHECK(left == expected);

        CHECK(thrown([&] { tensor(then, two, conditions); }) == status::invalid_arguments);
        std::vector<float> few(5);
        CHECK(thrown([&] { tensor(then, two, few); }) == status::invalid_arguments);
        const auto one = tensor::scalar(logical_tensor::host_scalar(4, data_type::s64), std::int64_t {5});
        CHECK(!one.engine() && one.data() == nullptr);
        CHECK(thrown([] { tensor::scalar(logical_tensor::host_scalar(4, data_type::s64), 5.0f); })
                == status::invalid_arguments);

        tensor moved = std::move(late);
        CHECK(moved.get() != nullptr && late.get() == nullptr);
        sterna_tensor_destroy(moved.release());
    }
    CHECK(blocks == 0);
}

// Notes what it is told.
struct notes : sterna::profiler {
    std::vector<sterna::phase_kind> kinds;
    std::vector<std::size_t> ids, bytes;
    std::chrono::nanoseconds of_phases {}, of_executions {};

    void phase(const sterna::phase_profile &told) noexcept override {
        CHECK(told.index == kinds.size() % told.phase_num && told.tasks > 0 && told.threads > 0 && told.flops == 0);
        CHECK(told.ops.size() == 1 && told.ops[0].kind == STERNA_OP_SELECT && told.bytes > 0);
        kinds.push_back(told.kind);
        of_phases += told.duration;
    }
    void execution(const sterna::execution_profile &told) noexcept override {
        CHECK(told.ops.size() == 1 && told.flops == 0);
        ids.push_back(told.ops[0].id);
        bytes.push_back(told.bytes);
        of_executions += told.duration;
    }
};

void profilers() {
    notes noted;
    sterna::profiler silent; // is told, and does nothing
    for (sterna::profiler *profiler : {static_cast<sterna::profiler *>(&noted), &silent}) {
        const sterna::allocator memory(give, take);
        const sterna::engine engine(
                sterna::engine_options().profiler(*profiler).threads(2).sleep_at_once(true).allocator(memory));
        CHECK(engine.threads() <= 2);
        const auto compiled = select_graph().partitions().at(0).compile({cond, then, otherwise}, {dst}, engine);
        const bool conditions[] = {true, false, false, true, true, false};
        const std::vector<float> left {1, 2, 3, 4, 5, 6};
        std::vector<float> result(6);
        for (int i = 0; i < 3; i++) {
            compiled.run({compiled.tensor("cond", conditions), compiled.tensor("then", left),
                                 compiled.tensor("else", left)},
                    {compiled.tensor("dst", result)});
        }
        CHECK(result == left);
    }
    CHECK(noted.kinds == std::vector<sterna::phase_kind>(3, sterna::phase_kind::map));
    CHECK(noted.ids == std::vector<std::size_t>(3, 7) && noted.bytes == std::vector<std::size_t>(3, 6 * 13));
    CHECK(noted.of_phases <= noted.of_executions && noted.of_executions.count() > 0);
}

void selects() {
    const std::vector<std::uint8_t> mask {1, 0, 1};
    const std::vector<float> scores {1, 2, 3, 4, 5, 6};
    const auto masked = sterna::select<float>({mask, {3}}, {scores, {2, 3}}, -1.0f);
    CHECK((masked.values == std::vector<float> {1, -1, 3, 4, -1, 6}));
    CHECK((masked.dims == std::vector<std::int64_t> {2, 3}));

    const bool rows[] = {true, false};
    const std::int16_t columns[] = {1, 2};
    sterna::select_options any_way;
    any_way.auto_broadcast = "multidirectional";
    const std::int16_t zero = 0;
    const auto enlarged = sterna::select<std::int16_t>({rows, {2, 1}}, {columns, {2}}, zero, any_way);
    CHECK((enlarged.values == std::vector<std::int16_t> {1, 2, 0, 0}));

    // On an engine of its own, transposed, of a type that C++ has no name for.
    const sterna::engine one(sterna::engine_options().threads(1));
    sterna::select_options on_one;
    on_one.engine = one;
    const std::uint16_t halves[] = {10, 20, 30, 40}, none[] = {0};
    std::uint16_t turned[4] = {};
    sterna::select_into(true, {data_type::bf16, halves, {2, 2}, {1, 2}}, {data_type::bf16, none, {}},
            {data_type::bf16, turned, {2, 2}}, on_one);
    CHECK(turned[0] == 10 && turned[1] == 30 && turned[2] == 20 && turned[3] == 40);

    CHECK(thrown([&] { sterna::select<float>({mask, {2}}, {scores, {2, 3}}, -1.0f); }) == status::invalid_shape);
    CHECK(thrown([&] { sterna::select<float>(1.0f, {scores, {6}}, -1.0f); }) == status::invalid_graph_op);
    CHECK(thrown([&] { sterna::select<float>(true, {scores, {7}}, -1.0f); }) == status::invalid_arguments);
    CHECK(thrown([&] { sterna::select<float>(true, {scores, {2, -3}}, -1.0f); }) == status::invalid_arguments);
    any_way.auto_broadcast = "numpi";
    CHECK(thrown([&] { sterna::select<float>(true, {scores, {6}}, -1.0f, any_way); }) == status::invalid_arguments);
}

// Scales by a factor; refuses if it is negative.
class scale : public sterna::custom_op {
public:
    explicit scale(int &dropped) : dropped_(dropped) {}
    ~scale() override { dropped_++; }

    std::vector<std::vector<std::int64_t>> output_dims(sterna::custom_node_ref node,
            const std::vector<logical_tensor> &inputs, std::size_t outputs) const override {
        CHECK(outputs == 1 && node.op_name() == "my.domain::Scale" && node.text("text") == "any");
        const auto dims = inputs.at(0).dims();
        return {{dims.begin(), dims.end()}};
    }
    void run(sterna::custom_node_ref node, const std::vector<sterna::custom_input> &inputs,
            const std::vector<sterna::custom_output> &outputs) const override {
        const float factor = node.floats("factor")[0];
        if (factor < 0) throw std::runtime_error("no scale today");
        CHECK(node.integers("list")[1] == 5 && inputs[0].dims().size() == 2 && inputs[0].strides().empty());
        const auto from = inputs[0].values<float>();
        const auto to = outputs[0].values<float>();
        for (std::size_t i = 0; i < from.size(); i++) to[i] = factor * from[i];
    }

private:
    int &dropped_;
};

sterna::model scaled(float factor, int &lent) {
    sterna::graph_builder g;
    const auto x = g.input("x", data_type::f32, {sterna::unknown_dim, 2});
    struct weights {
        explicit weights(int &count) : lent(count) { lent++; }
        ~weights() { lent--; }
        int &lent;
        float values[4] = {1, 0, 0, 2};
    };
    const auto owner = std::make_shared<weights>(lent);
    const auto w = g.lent_constant("w", data_type::f32, {2, 2}, owner->values, sizeof owner->values, owner);
    const auto bias = g.constant("bias", {2}, std::vector<float> {1, 1});
    const auto product = g.matmul(x, w, sterna::op_options().named("product"), {bias});
    sterna::custom_node node("my.domain::Scale");
    node.attr("factor", factor).attr("list", sterna::view<const std::int64_t>({4, 5})).attr("text", "any");
    const auto y = g.custom(node, {product}, {logical_tensor::unknown(0, data_type::f32)}).at(0);
    g.output("y", (y + x) * 2.0f - 1.0f);
    g.output("sums", g.reduce_sum(y / 1.0f, {1}, sterna::op_options().keep_dims(true)));
    CHECK(thrown([&] { g.matmul(w, g.constant("three", {3}, std::vector<float> {1, 2, 3})); })
            == status::invalid_shape);
    sterna::graph_builder other;
    CHECK(thrown([&] { other.relu(x); }) == status::invalid_arguments);
    return g.build();
}

void sessions(const sterna::engine &engine) {
    int dropped = 0, lent = 0;
    {
        const auto model = scaled(3, lent);
        CHECK(model.inputs().size() == 1 && model.outputs().at(1).name == "sums");
        CHECK(thrown([&] { sterna::session(model, engine); }) == status::unimplemented);
        sterna::session_options options;
        options.shapes(2).arenas(1).fpmath(sterna::fpmath_mode::strict).op("my.domain::Scale", std::make_shared<scale>(dropped));
        const sterna::session session(model, engine, options);
        CHECK(session.inputs().at(0).name == "x" && session.outputs().at(0).name == "y");
        const std::vector<float> x {1, 2, 3, 4};
        const auto out = session.run({{"x", {x, {2, 2}}}});
        // 3 · (x · w + 1): 6, 15, 12, 27.
        CHECK(out.size() == 2 && out.name(0) == "y" && out["y"].desc().dims()[0] == 2);
        const auto y = out.values<float>("y");
        CHECK(y.size() == 4 && y[0] == 13 && y[1] == 33 && y[2] == 29 && y[3] == 61);
        CHECK(out.values<float>("sums")[1] == 39);
        CHECK(thrown([&] { out["z"]; }) == status::invalid_arguments);
        std::vector<float> into(2), sums(1);
        session.run_into({{"x", {x, {1, 2}}}}, {{"sums", {sums, {1, 1}}}, {"y", {into, {1, 2}}}});
        CHECK(into[1] == 33 && sums[0] == 21 && session.run_memory() > 0);
        CHECK(thrown([&] { session.run({{"z", {x, {2, 2}}}}); }) == status::invalid_arguments);
    }
    CHECK(lent == 0 && dropped == 1);
    sterna::session_options options;
    options.op("my.domain::Scale", std::make_shared<scale>(dropped));
    const sterna::session fails(scaled(-1, lent), engine, options);
    CHECK(thrown([&] { fails.run({{"x", {std::vector<float> {1, 2}, {1, 2}}}}); }) == status::runtime_error);

    sterna::graph_builder g;
    const std::vector<std::int64_t> dims {2, 3, 4};
    const auto q = g.input("q", data_type::f32, dims), k = g.input("k", data_type::f32, dims);
    const auto v = g.input("v", data_type::f32, dims);
    g.output("dst", g.attention(sterna::attention(q.desc(), k.desc(), v.desc()).causal(sterna::causal::top_left)));
    const sterna::session session(g.build(), engine);
    std::vector<float> ones(24, 1.0f);
    const auto out = session.run({{"q", {ones, dims}}, {"k", {ones, dims}}, {"v", {ones, dims}}});
    CHECK(out.values<float>("dst")[23] == 1.0f);

    const sterna::model by_length({{"x", logical_tensor(0, data_type::f32, {sterna::unknown_dim})}},
            {{"y", logical_tensor::unknown(1, data_type::f32)}}, [](const std::vector<logical_tensor> &inputs) {
                sterna::graph_builder b;
                const auto dims = inputs.at(0).dims();
                if (dims[0] > 4) throw std::runtime_error("at most 4");
                b.output("y", b.input("x", data_type::f32, dims) * static_cast<float>(dims[0]));
                return b.build();
            });
    const sterna::session lengths(by_length, engine);
    CHECK(lengths.run({{"x", {ones, {3}}}}).values<float>("y")[2] == 3);
    CHECK(thrown([&] { lengths.run({{"x", {ones, {5}}}}); }) == status::invalid_arguments);

    sterna::graph_builder s;
    const auto past = s.input("past_rows", data_type::f32, {sterna::unknown_dim, 2});
    const auto all = s.concat({past, s.input("x", data_type::f32, {sterna::unknown_dim, 2})}, 0);
    s.output("present_rows", all);
    s.output("sum", s.reduce_sum(all, {0}));
    sterna::session_options keeps;
    keeps.state({"past_rows", "present_rows", 0, 3});
    const sterna::session rows(s.build(), engine, keeps);
    sterna::session_state state(rows, {{"past_rows", {2, 2}}});
    CHECK(rows.run(state, {{"x", {ones, {2, 2}}}}).values<float>("sum")[0] == 2);
    auto forked = state.fork();
    std::vector<float> sum(2);
    rows.run_into(state, {{"x", {ones, {1, 2}}}}, {{"sum", {sum, {2}}}});
    CHECK(sum[1] == 3 && state.size() == 3 && forked.size() == 2 && state.memory() >= 24);
    CHECK(thrown([&] { rows.run(state, {{"x", {ones, {1, 2}}}}); }) == status::invalid_arguments);
    CHECK(state.size() == 3);
    state.trim(1);
    forked.reset();
    forked.set("past_rows", {ones, {1, 2}});
    CHECK(rows.run(forked, {{"x", {ones, {1, 2}}}}).size() == 1 && forked.size() == 2);
    const auto descs = rows.output_descs({{"past_rows", {4, 2}}, {"x", {1, 2}}});
    CHECK(descs.at(0).dims()[0] == 5);
    sterna::session_options found;
    found.find_states();
    CHECK(thrown([&] { sterna::session_state(session, {}); }) == status::invalid_arguments);

    auto graph = select_graph();
    const sterna::model with_names(graph, {{"cond", cond}, {"then", then}, {"else", otherwise}}, {{"dst", dst}});
    CHECK(with_names.inputs().at(2).name == "else");
    sterna::model of_graph(graph);
    const bool truth[6] = {true, false, true};
    of_graph.constant(0, truth, sizeof truth);
    CHECK(of_graph.inputs().size() == 2);
    CHECK(thrown([&] { of_graph.custom(99, sterna::custom_node("a::B")); }) == status::invalid_arguments);
}

} // namespace

int main() {
    process();
    descriptions();
    graphs();
    attentions();
    executions();
    profilers();
    selects();
    sessions(sterna::engine());
    std::cout << (faults ? "faults" : "all is right") << '\n';
    return faults != 0;
}
