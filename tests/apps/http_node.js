// http_node.js server|cluster HOST PORT: answers a POST with what was posted; cluster: two worker processes.
// http_node.js client HOST PORT: posts on kept connections, several at once, and compares.
'use strict';
const cluster = require('cluster');
const crypto = require('crypto');
const http = require('http');
const [side, host, port] = process.argv.slice(2);

function serve() {
    http.createServer((request, response) => {
        response.writeHead(200, {'Content-Type': 'application/octet-stream'});
        request.pipe(response);
    }).listen(+port, host);
}

function post(agent, body) {
    return new Promise((resolve, reject) => {
        const request = http.request({agent, host, port, method: 'POST'}, (response) => {
            const parts = [];
            response.on('data', (part) => parts.push(part));
            response.on('error', reject);
            response.on('end', () => Buffer.concat(parts).equals(body) ? resolve() :
                reject(new Error(`wrong bytes in an answer to ${body.length}`)));
        });
        request.on('error', reject);
        request.end(body);
    });
}

async function ask() {
    const agent = new http.Agent({keepAlive: true, maxSockets: 4});
    const sizes = [1, 100, 5000, 70000, 1000000];
    const one = async () => {
        for (let i = 0; i < 60; i++)
            await post(agent, crypto.randomBytes(sizes[i % sizes.length]));
    };
    await Promise.all([one(), one(), one(), one()]);
    agent.destroy();
    console.log('all came back');
}

if (side === 'client') {
    ask().catch((error) => { console.error(error.message); process.exit(1); });
} else if (side === 'cluster' && cluster.isPrimary) {
    cluster.fork();
    cluster.fork();
    process.on('SIGTERM', () => {
        cluster.on('exit', () => { if (Object.keys(cluster.workers).length === 0) process.exit(0); });
        for (const id in cluster.workers)
            cluster.workers[id].process.kill();
    });
} else {
    serve();
}
