// A stock @grpc/grpc-js client against a node: NARAD_SERVER=host:port node client_test.js
'use strict';

const assert = require('node:assert');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const root = path.resolve(__dirname, '..', '..', '..', 'proto');
const definition = loader.loadSync(
    ['narad/v1/broker.proto', 'narad/v1/admin.proto', 'grpc/health/v1/health.proto'],
    {includeDirs: [root], keepCase: true, longs: Number, defaults: true});
const {narad: {v1: narad}, grpc: {health: {v1: health}}} = grpc.loadPackageDefinition(definition);

const target = process.env.NARAD_SERVER;
const credentials = grpc.credentials.createInsecure();
const broker = new narad.Broker(target, credentials);
const admin = new narad.Admin(target, credentials);
const patience = () => ({deadline: Date.now() + 20000});
const topic = `interop-node-${process.pid}`;

/** The reply of a unary call, or its error. */
function call(client, method, request, options = patience()) {
    return new Promise((resolve, reject) => client[method](
        request, options, (error, reply) => (error ? reject(error) : resolve(reply))));
}

/** All responses of a stream that ends by itself. */
function collect(stream) {
    return new Promise((resolve, reject) => {
        const responses = [];
        stream.on('data', (response) => responses.push(response));
        stream.on('error', reject);
        stream.on('end', () => resolve(responses));
    });
}

const tests = {
    async 'a topic is created and found'() {
        const made = await call(admin, 'CreateTopic', {name: topic, partitions: 3,
            max_in_flight_per_partition: 10000});
        assert.strictEqual(made.topic.partitions, 3);
        await assert.rejects(call(admin, 'CreateTopic', {name: topic}),
            {code: grpc.status.ALREADY_EXISTS});
        await assert.rejects(call(admin, 'GetTopic', {name: 'interop-node-none'}),
            {code: grpc.status.NOT_FOUND});
    },

    async 'a record comes back as it was sent'() {
        const record = {key: Buffer.from([0, 1]), payload: Buffer.from([255, 0, 7]), partition: 1,
            headers: [{name: 'trace-id', value: Buffer.from('abc')}]};
        const produced = await call(broker, 'Produce', {topic, records: [record]});
        assert.deepStrictEqual(produced.placements.map((p) => [p.partition, p.offset]), [[1, 0]]);
        const {messages: [message]} = await call(broker, 'Consume', {topic, wait_ms: 5000});
        assert.deepStrictEqual(message.payload, record.payload);
        assert.deepStrictEqual(message.key, record.key);
        assert.strictEqual(message.headers[0].name, 'trace-id');
        const settled = await call(broker, 'Ack', {topic,
            settles: [{receipt_handle: message.receipt_handle, action: 'SETTLE_ACTION_ACK'}]});
        assert.deepStrictEqual(settled.results.map((r) => r.code), [0]);
    },

    async '5000 items of a stream are confirmed in order, and all are delivered'() {
        const count = 5000;
        const stream = broker.ProduceStream(patience());
        const done = collect(stream);
        for (let id = 0; id < count; id++) {
            stream.write({items: [{id, topic, records: [{payload: Buffer.from(`m${id}`)}]}]});
        }
        stream.end();
        const results = (await done).flatMap((response) => response.results);
        assert.deepStrictEqual(results.map((r) => r.id), Array.from({length: count}, (_, i) => i));
        assert.ok(results.every((r) => r.code === 0));

        const seen = new Set();
        const subscription = broker.Subscribe(patience());
        await new Promise((resolve, reject) => {
            let settled = 0;
            subscription.on('error', reject);
            subscription.on('end', resolve);
            subscription.on('data', ({messages, results: confirmed}) => {
                settled += confirmed.length;
                messages.forEach((message) => seen.add(message.payload.toString()));
                if (messages.length > 0) {
                    subscription.write({settles: messages.map(
                        (message) => ({receipt_handle: message.receipt_handle}))});
                }
                if (settled === count) {
                    subscription.end();
                }
            });
            subscription.write({start: {topic, max_outstanding: 100}});
        });
        assert.strictEqual(seen.size, count);
        assert.ok(seen.has('m0') && seen.has(`m${count - 1}`));
    },

    async 'replay streams what was stored'() {
        const responses = await collect(broker.Replay({topic, partition: 1, offset: 0}, patience()));
        const messages = responses.flatMap((response) => response.messages);
        assert.ok(messages.length > 100);
        messages.forEach((message, i) => assert.strictEqual(message.offset, i));
    },

    async 'a deadline ends a waiting consume'() {
        await assert.rejects(
            call(broker, 'Consume', {topic, wait_ms: 30000}, {deadline: Date.now() + 300}),
            {code: grpc.status.DEADLINE_EXCEEDED});
    },

    async 'a cancelled subscription ends'() {
        const subscription = broker.Subscribe(patience());
        const ended = collect(subscription);
        subscription.write({start: {topic}});
        subscription.cancel();
        await assert.rejects(ended, {code: grpc.status.CANCELLED});
    },

    async 'wrong arguments and unknown methods have their status'() {
        await assert.rejects(call(broker, 'Produce', {topic, records: []}),
            {code: grpc.status.INVALID_ARGUMENT});
        await assert.rejects(call(broker, 'Produce', {topic: 'interop-node-none',
            records: [{payload: Buffer.from('x')}]}), {code: grpc.status.NOT_FOUND});
        const bytes = (buffer) => buffer;
        await assert.rejects(new Promise((resolve, reject) => broker.makeUnaryRequest(
            '/narad.v1.Broker/Nope', bytes, bytes, Buffer.alloc(0), patience(),
            (error, reply) => (error ? reject(error) : resolve(reply)))),
        {code: grpc.status.UNIMPLEMENTED});
    },

    async 'health is serving'() {
        const client = new health.Health(target, credentials);
        assert.strictEqual((await call(client, 'Check', {service: ''})).status, 1);
        client.close();
    },
};

async function main() {
    let failed = 0;
    for (const [name, test] of Object.entries(tests)) {
        const started = Date.now();
        try {
            await test();
            console.log(`ok: ${name} (${Date.now() - started} ms)`);
        } catch (error) {
            failed += 1;
            console.log(`FAILED: ${name}`, error);
        }
    }
    broker.close();
    admin.close();
    process.exit(failed > 0 ? 1 : 0);
}

main();
