-- Payments with their orders, if these were paid within an hour.
CREATE STREAMING TABLE paid_orders AS
SELECT o.order_id, o.placed_at, o.country, o.total, p.payment_id, p.amount, p.paid_at
FROM STREAM orders WATERMARK placed_at DELAY OF INTERVAL 10 MINUTES AS o
JOIN STREAM payments WATERMARK paid_at DELAY OF INTERVAL 10 MINUTES AS p
    ON o.order_id = p.order_id
    AND p.paid_at BETWEEN o.placed_at AND o.placed_at + INTERVAL 1 HOUR;

-- What was paid in each five minutes, once these are over.
CREATE STREAMING TABLE revenue AS
SELECT window.start AS begins_at, country, count(*) AS payments, sum(amount) AS amount
FROM STREAM paid_orders WATERMARK paid_at DELAY OF INTERVAL 10 MINUTES
GROUP BY window(paid_at, '5 minutes'), country;

-- Computed anew on each run, so it needs no watermark.
CREATE MATERIALIZED VIEW countries AS
SELECT country, count(DISTINCT order_id) AS orders, sum(amount) AS amount
FROM paid_orders
GROUP BY country;
